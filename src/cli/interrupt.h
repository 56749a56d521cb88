#pragma once

namespace aeshna::cli {

/// While it lives, the first SIGINT (or SIGTERM) only sets a flag, so that a step can end and a checkpoint be written; the
/// second one ends the program. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool requested() const;
  void rearm();         ///< forgets the signal: the next one is the first again
  bool by_key() const;  ///< it was SIGINT
  int status() const;  ///< exit status of a program stopped by that signal, 128 + its number

 private:
  void (*old_int_)(int);
  void (*old_term_)(int);
};

}  // namespace aeshna::cli
