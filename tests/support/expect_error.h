#pragma once
// EXPECT_ERROR(statement, code, "part of the message"): the statement throws aeshna::Error with this code and text.
// message_of(code, f): the text, for several EXPECT_HAS(text, "part"). message(f): the text alone, for matchers.
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

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

namespace aeshna::test {

/// The text of the Error that `f` throws; "no error" if it throws none.
template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// Runs `f`, which must throw an Error of this code; its text.
template <class F>
std::string message_of(ErrorCode code, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error";
  return "";
}

}  // namespace aeshna::test
