les_test(router_test)
les_test(state_test)
