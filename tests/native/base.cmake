les_test(base_test)
