les_test(kernels_matmul_test)
les_test(kernels_math_test)
les_test(kernels_dispatch_test)

# Not a test: prints GB/s and GFLOP/s.
add_executable(bench_kernels EXCLUDE_FROM_ALL bench_kernels.cc)
target_link_libraries(bench_kernels PRIVATE les_core les_flags)
