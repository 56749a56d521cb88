#pragma once
// EXPECT_ERROR(statement, code, "part of the message"): the statement throws aeshna::Error with this code and text.
#include <gtest/gtest.h>

#include <string>

#include "aeshna/error.h"

#define EXPECT_ERROR(statement, expected_code, part)                 \
  do {                                                               \
    try {                                                            \
      statement;                                                     \
      ADD_FAILURE() << "no error from " #statement;                  \
    } catch (const ::aeshna::Error& e) {                             \
      EXPECT_EQ(e.code(), expected_code) << e.what();                \
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) \
          << "expected '" << (part) << "' in: " << e.what();         \
    }                                                                \
  } while (false)
