les_test(ready_queue_test)
