// Inputs and outputs of a session.
#include <algorithm>

#include "base/fail.h"
#include "base/names.h"
#include "compile/reserved.h"
#include "ir/device_types.h"
#include "runtime/convert.h"
#include "runtime/session_impl.h"
#include "runtime/transfer.h"

namespace aeshna {

std::vector<std::string> Session::Impl::user_inputs() const {
  std::vector<std::string> names;
  for (const SessionInput& input : inputs) {
    if (!input.hidden) names.push_back(input.name);
  }
  return names;
}

std::vector<std::string> Session::Impl::user_outputs() const {
  std::vector<std::string> names;
  for (const SessionOutput& output : outputs) {
    if (!output.name.starts_with(reserved::prefix)) names.push_back(output.name);
  }
  return names;
}

SessionInput& Session::Impl::input(std::string_view name) {
  for (SessionInput& input : inputs) {
    if (!input.hidden && input.name == name) return input;
  }
  fail(ErrorCode::NotFound, "no input '{}'{}", name, suggest_names(name, user_inputs()));
}

void Session::Impl::write_input(SessionInput& input, DType dtype, std::uint64_t elements,
                                std::span<const std::byte> host) {
  const auto expected = static_cast<std::uint64_t>(input.type.shape.elements());
  const bool widens = dtype == DType::i32 && input.type.dtype == DType::i64;  // both are i32 on the device
  if (dtype != input.type.dtype && !widens) {
    fail(ErrorCode::DTypeMismatch, "input '{}' expects {}, found {} values of dtype {}", input.name,
         input.type.to_string(), elements, dtype_name(dtype));
  }
  if (elements != expected) {
    fail(ErrorCode::ShapeMismatch, "input '{}' expects {} ({} values), found {}", input.name, input.type.to_string(),
         expected, elements);
  }
  check_device_form({dtype, input.type.shape}, host, input.name);
  if (input.direct) {
    write_direct(input, dtype, host);
  } else if (!input.buffers.empty()) {
    Slot& slot = acquire();
    to_device(dtype, host, 0, elements,
              {reinterpret_cast<std::uint32_t*>(slot.staging->mapped() + input.staging), device_bytes(input.type) / 4});
  }
  input.set = input.dirty = true;
}

void Session::Impl::write_direct(SessionInput& input, DType dtype, std::span<const std::byte> host) {
  retire_all();  // its last reader
  if (last_bad && !input.dirty) seen_by_bad[&input] = read_parts(input.type, input.buffers);
  std::vector<UploadItem> items;
  append_items(items, input.name, {dtype, input.type.shape}, host, input.buffers, device().caps());
  upload(device(), items, 0);
}

std::vector<std::byte> Session::Impl::read_parts(const TensorType& type, const Buffers& buffers) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
  std::vector<DownloadItem> items;
  append_items(items, type, bytes, buffers, device().caps());
  download(device(), items, 0);
  return bytes;
}

SessionOutput& Session::Impl::output(std::string_view name) {
  const auto found = std::ranges::find(outputs, name, &SessionOutput::name);
  if (found == outputs.end()) fail(ErrorCode::NotFound, "no output '{}'{}", name, suggest_names(name, user_outputs()));
  return *found;
}

Literal Session::Impl::read_previous(std::string_view name) {
  const SessionOutput& found = output(name);
  if (runs < 2)
    fail(ErrorCode::InvalidArgument, "output '{}' of the step before the last is read before the second step", name);
  if (!found.readback) {
    fail(ErrorCode::InvalidArgument,
         "output '{}' {} is larger than the {} bytes that every step brings back: only that of the last step is there",
         name, found.type.to_string(), kSmallOutput);
  }
  Slot& slot = slots[(next + kSlots - 2) % kSlots];
  retire(slot);
  if (bad) wait();
  std::vector<std::byte> bytes(static_cast<std::size_t>(found.type.bytes()));
  to_host(found.type.dtype,
          {reinterpret_cast<const std::uint32_t*>(slot.readback->mapped() + *found.readback), found.bytes / 4}, 0,
          static_cast<std::uint64_t>(found.type.shape.elements()), bytes);
  return Literal(found.type, std::move(bytes));
}

Literal Session::Impl::read_output(std::string_view name) {
  SessionOutput& output = this->output(name);
  if (runs == 0) fail(ErrorCode::InvalidArgument, "output '{}' is read before the first step", name);
  wait();

  if (output.buffers.size() > 1) return Literal(output.type, read_parts(output.type, output.buffers));
  const auto elements = static_cast<std::uint64_t>(output.type.shape.elements());
  std::vector<std::byte> bytes(static_cast<std::size_t>(output.type.bytes()));
  std::uint64_t offset = 0;
  std::byte* mapped = nullptr;
  if (output.readback) {
    Slot& last = slots[(next + kSlots - 1) % kSlots];
    mapped = last.readback->mapped();
    offset = *output.readback;
  } else if (output.buffers[0]->mapped() != nullptr) {
    mapped = output.buffers[0]->mapped();
    offset = output.offset;
  } else {
    if (!output.download) {
      output.host = device().create_buffer(output.bytes, gpu::MemoryKind::Readback, output.name);
      const gpu::CopyCommand copy{{output.buffers[0].get(), output.offset, output.bytes},
                                  {output.host.get(), 0, output.bytes}};
      output.download = record_copies(std::span(&copy, 1), {output.buffers[0], output.host}, "download " + output.name);
    }
    gpu::CommandList* lists[] = {output.download.get()};
    device().wait(device().submit(lists));
    mapped = output.host->mapped();
  }
  to_host(output.type.dtype, {reinterpret_cast<const std::uint32_t*>(mapped + offset), output.bytes / 4}, 0, elements, bytes);
  return Literal(output.type, std::move(bytes));
}

}  // namespace aeshna
