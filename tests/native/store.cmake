les_test(store_gguf_test)
les_test(store_expert_test)
