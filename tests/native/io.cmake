les_test(io_file_test)
les_test(io_reader_test)
les_test(io_flash_test)

# Figures, not a test: cmake --build BUILD --target bench_reader
add_executable(bench_reader EXCLUDE_FROM_ALL io_bench.cc)
target_link_libraries(bench_reader PRIVATE les_core les_flags)
