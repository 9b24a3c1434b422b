les_test(memory_plan_test)
les_test(golden_test)
target_compile_definitions(golden_test PRIVATE "LES_DEFAULT_SHARED=\"${PROJECT_SOURCE_DIR}/../shared\"")
