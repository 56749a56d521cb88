#include "cli/interrupt.h"

#include <csignal>

namespace aeshna::cli {
namespace {

volatile std::sig_atomic_t received = 0;  // all that a signal handler may touch

extern "C" void on_signal(int number) {
  received = number;
  std::signal(number, SIG_DFL);  // a second one ends the program
}

}  // namespace

Interrupt::Interrupt() {
  received = 0;
  old_int_ = std::signal(SIGINT, on_signal);
  old_term_ = std::signal(SIGTERM, on_signal);
}

void Interrupt::rearm() {
  received = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, old_int_);
  std::signal(SIGTERM, old_term_);
}

bool Interrupt::requested() const { return received != 0; }
bool Interrupt::by_key() const { return received == SIGINT; }
int Interrupt::status() const { return 128 + received; }

}  // namespace aeshna::cli
