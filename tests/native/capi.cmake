# The C API: from C++ beside the engine itself, and from a strict C99 program over the shared library.
enable_language(C)

add_executable(capi_test capi_test.cc)
target_link_libraries(capi_test PRIVATE les_c_static les_flags doctest::doctest)
target_compile_definitions(capi_test PRIVATE LES_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
add_test(NAME capi_test COMMAND capi_test)

add_executable(capi_c99_test capi_c99_test.c)
target_compile_definitions(capi_c99_test PRIVATE LES_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
add_test(NAME capi_c99_test COMMAND capi_c99_test)
set_tests_properties(capi_test capi_c99_test PROPERTIES SKIP_RETURN_CODE 77)

add_executable(generate_example ${CMAKE_SOURCE_DIR}/examples/generate.c)
foreach(target capi_c99_test generate_example)
  target_link_libraries(${target} PRIVATE les_c)
  target_compile_options(${target} PRIVATE -std=c99 -pedantic -Wall -Wextra -Werror)
  if(LES_SANITIZE)
    target_link_options(${target} PRIVATE -fsanitize=${LES_SANITIZE})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
endforeach()
add_test(NAME capi_example
         COMMAND ${CMAKE_COMMAND} -DEXAMPLE=$<TARGET_FILE:generate_example> -DSOURCE_DIR=${CMAKE_SOURCE_DIR}
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/check_example.cmake)
set_tests_properties(capi_example PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")

# Sanitizers add symbols of their own.
if(CMAKE_NM AND NOT LES_SANITIZE)
  add_test(NAME capi_symbols
           COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DSHARED=$<TARGET_FILE:les_c> -DSTATIC=$<TARGET_FILE:les_c_static>
                   -DHEADER=${CMAKE_SOURCE_DIR}/csrc/les.h -P ${CMAKE_CURRENT_SOURCE_DIR}/check_c_symbols.cmake)
  add_test(NAME capi_install
           COMMAND ${CMAKE_COMMAND} -DBUILD_DIR=${CMAKE_BINARY_DIR} -DSOURCE_DIR=${CMAKE_SOURCE_DIR}
                   -DGENERATOR=${CMAKE_GENERATOR} -DMAKE_PROGRAM=${CMAKE_MAKE_PROGRAM} -DCC=${CMAKE_C_COMPILER}
                   -DCXX=${CMAKE_CXX_COMPILER} -P ${CMAKE_CURRENT_SOURCE_DIR}/check_install.cmake)
endif()
