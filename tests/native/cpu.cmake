les_test(thread_pool_test)
