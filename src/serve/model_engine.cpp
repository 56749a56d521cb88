#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/fail.h"
#include "serve/engine.h"

namespace aeshna::serve {
namespace {

ServedModel served(const LanguageModel& model, const EngineOptions& options) {
  ServedModel s{.id = options.id.empty() ? model.name() : options.id,
                .tokenizer = model.tokenizer(),
                .context = options.generator.context};
  try {
    s.chat = model.chat_template();
  } catch (const Error& error) {
    s.why_no_chat = error.message();
  }
  return s;
}

class ModelEngine final : public Engine {
 public:
  ModelEngine(LanguageModel model, const EngineOptions& options)
      : model_(served(model, options)),
        waiting_limit_(options.waiting),
        generator_(std::move(model), options.generator),
        worker_([this](const std::stop_token& stop) { work(stop); }) {}

  ~ModelEngine() override { worker_.request_stop(); }  // and joined

  const ServedModel& model() const override { return model_; }

  Admission submit(std::span<const std::shared_ptr<Job>> jobs) override {
    if (jobs.size() > waiting_limit_) return Admission::Never;
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return Admission::Failed;
      std::erase_if(waiting_, [](const std::shared_ptr<Job>& job) { return job->cancelled(); });
      if (waiting_.size() + jobs.size() > waiting_limit_) return Admission::Full;
      waiting_.insert(waiting_.end(), jobs.begin(), jobs.end());
    }
    changed_.notify_one();
    return Admission::Taken;
  }

  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void work(const std::stop_token& stop) {
    while (true) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return !waiting_.empty(); }) || stop.stop_requested()) break;
        job = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (!job->cancelled()) run(*job, stop);
    }
    end_waiting(Error(ErrorCode::Io, "the server is shutting down"));
  }

  void run(Job& job, const std::stop_token& stop) {
    JobEnd end;
    try {
      const auto sampler = host_sampler(job.sampling);
      const Generation g = generator_.generate(
          job.prompt, *sampler, {.max_tokens = job.max_tokens, .stop = job.stop, .on_text = [&](std::string_view text) {
                                   if (job.cancelled() || stop.stop_requested()) return false;
                                   job.on_text(text);
                                   return true;
                                 }});
      end = {.end = g.end, .tokens = g.ids.size()};
      if (g.end == Generation::End::Caller) end.error = Error(ErrorCode::Io, "the server is shutting down");
    } catch (const Error& error) {
      end.error = error;
    } catch (const std::bad_alloc&) {
      end.error = Error(ErrorCode::OutOfMemory, "out of memory");
    }
    if (end.error && (end.error->code() == ErrorCode::DeviceLost || end.error->code() == ErrorCode::Internal))
      give_up(*end.error);
    if (!job.cancelled()) job.on_end(end);
  }

  /// The device is gone, or its state is not to be trusted: nothing can be computed any more.
  void give_up(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = error.message();
    }
    end_waiting(error);
  }

  void end_waiting(const Error& error) {
    std::deque<std::shared_ptr<Job>> rest;
    {
      const std::lock_guard lock(mutex_);
      rest.swap(waiting_);
    }
    for (const std::shared_ptr<Job>& job : rest)
      if (!job->cancelled()) job->on_end({.error = error});
  }

  const ServedModel model_;
  const std::size_t waiting_limit_;
  Generator generator_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::string failure_;
  std::jthread worker_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Engine> model_engine(LanguageModel model, const EngineOptions& options) {
  return std::make_unique<ModelEngine>(std::move(model), options);
}

}  // namespace aeshna::serve
