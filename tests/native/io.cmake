les_test(io_file_test)
les_test(io_reader_test)
les_test(io_flash_test)
