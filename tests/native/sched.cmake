les_test(ready_queue_test)
les_test(scheduler_test)
