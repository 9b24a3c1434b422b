les_test(quant_test)
les_test(quantize_test)
