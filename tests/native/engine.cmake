les_test(memory_plan_test)
