"""Models computed in double precision with numpy, for tests that need a tighter answer than a recorded one."""
