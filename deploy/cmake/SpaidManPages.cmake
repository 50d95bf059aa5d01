# spaid_man_pages(PROGRAM...): their man pages, made of --help when the programs are built, and installed with
# them into share/man. Without Python there are none, which configuring says.
function(spaid_man_pages)
  find_program(SPAID_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(NOT SPAID_PYTHON OR CMAKE_CROSSCOMPILING)
    message(STATUS "No man pages: there is no /usr/bin/python3, or the programs do not run here")
    return()
  endif()
  set(script ${PROJECT_SOURCE_DIR}/deploy/man_pages.py)
  set(folder ${PROJECT_BINARY_DIR}/man)
  set(files)
  foreach(program ${ARGN})
    list(APPEND files $<TARGET_FILE:${program}>)
  endforeach()
  add_custom_command(OUTPUT ${folder}/made
    COMMAND ${SPAID_PYTHON} ${script} ${folder}/man1 ${files}
    COMMAND ${CMAKE_COMMAND} -E touch ${folder}/made
    DEPENDS ${script} ${ARGN}
    COMMENT "Making man pages" VERBATIM)
  add_custom_target(spaid_man ALL DEPENDS ${folder}/made)
  install(DIRECTORY ${folder}/man1 DESTINATION share/man COMPONENT runtime)
endfunction()
