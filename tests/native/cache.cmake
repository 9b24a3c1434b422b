les_test(cache_test)
