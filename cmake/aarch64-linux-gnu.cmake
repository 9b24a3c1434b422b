# Cross-compiles for 64-bit ARM Linux with Debian's g++-aarch64-linux-gnu. ctest runs the tests under qemu-user where it is
# installed; QEMU_CPU in the environment chooses the processor it plays: cortex-a53, cortex-a76, max.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

find_program(LES_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(LES_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${LES_QEMU}")
endif()
