#pragma once
#include <string_view>

#include "aeshna/llama.h"

namespace aeshna::models {

/// llama(), or with `decode` llama_decode(), whose refusals speak of [models::<name>].
Value llama_as(std::string_view name, Value ids, const LlamaConfig& config, const LlamaDecode* decode, const Loc& loc);

}  // namespace aeshna::models
