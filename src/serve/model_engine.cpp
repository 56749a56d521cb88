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

Error error_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::Internal, error.what());
  }
}

Generator prepared(LanguageModel model, const GeneratorOptions& options) {
  Generator generator(std::move(model), options);
  generator.prepare();
  return generator;
}

class ModelEngine final : public Engine {
 public:
  ModelEngine(LanguageModel model, const EngineOptions& options)
      : model_(served(model, options)),
        waiting_limit_(options.waiting),
        sequences_(static_cast<std::size_t>(options.generator.sequences)),
        generator_(prepared(std::move(model), options.generator)),
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
  struct Running {
    std::uint64_t number;  ///< of the generator
    std::shared_ptr<Job> job;
  };

  void work(const std::stop_token& stop) {
    while (take(stop)) {
      for (const Running& r : running_)
        if (r.job->cancelled()) generator_.cancel(r.number);
      try {
        generator_.advance();
      } catch (...) {  // of the device: all requests have ended
        give_up(error_of(std::current_exception()));
      }
    }
    end_all(Error(ErrorCode::Io, "the server is shutting down"));
  }

  /// Starts what there is room for; waits if there is nothing to do. False: it is time to stop.
  bool take(const std::stop_token& stop) {
    std::vector<std::shared_ptr<Job>> taken;
    {
      std::unique_lock lock(mutex_);
      if (running_.empty()) changed_.wait(lock, stop, [&] { return !waiting_.empty(); });
      while (!waiting_.empty() && running_.size() + taken.size() < sequences_) {
        taken.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    for (const std::shared_ptr<Job>& job : taken)
      if (!job->cancelled()) start(job);
    return !stop.stop_requested();
  }

  void start(const std::shared_ptr<Job>& job) {
    Request request{.prompt = job->prompt, .sampling = job->sampling};
    request.options = {.max_tokens = job->max_tokens, .stop = job->stop};
    request.options.on_text = [job](std::string_view text) {
      if (job->cancelled()) return false;
      job->on_text(text);
      return true;
    };
    request.on_end = [this, job](const Generation& g) {
      std::erase_if(running_, [&](const Running& r) { return r.job == job; });
      finish(*job, g);
    };
    try {
      running_.push_back({generator_.add(std::move(request)), job});
    } catch (...) {  // a request that cannot be, or no memory for it
      if (!job->cancelled()) job->on_end({.error = error_of(std::current_exception())});
    }
  }

  static void finish(const Job& job, const Generation& g) {
    if (job.cancelled()) return;
    JobEnd end{.end = g.end, .tokens = g.ids.size()};
    if (g.error) end.error = error_of(g.error);
    job.on_end(end);
  }

  /// The device is gone, or its state is not to be trusted: nothing can be computed any more.
  void give_up(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = error.message();
    }
    end_all(error);
  }

  void end_all(const Error& error) {
    std::deque<std::shared_ptr<Job>> rest;
    {
      const std::lock_guard lock(mutex_);
      rest.swap(waiting_);
    }
    for (const Running& r : std::exchange(running_, {})) rest.push_front(r.job);
    for (const std::shared_ptr<Job>& job : rest)
      if (!job->cancelled()) job->on_end({.error = error});
  }

  const ServedModel model_;
  const std::size_t waiting_limit_, sequences_;
  Generator generator_;           // the worker's
  std::vector<Running> running_;  // the worker's
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
