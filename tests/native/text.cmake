les_test(text_test)
