les_test(kernels_matmul_test)
les_test(kernels_math_test)
les_test(kernels_dispatch_test)
les_test(kernels_bench_test)

# Sanitizers add symbols of their own.
if(CMAKE_NM AND NOT LES_SANITIZE)
  add_test(NAME kernels_symbols
           COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DOBJECTS=$<JOIN:$<TARGET_OBJECTS:les_core>,,>"
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/check_isa_symbols.cmake)
endif()
