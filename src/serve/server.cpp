// HTTP: one thread, and a coroutine for each connection (Boost.Asio and Boost.Beast).
#include "serve/server.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <thread>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/fail.h"
#include "base/shown.h"
#include "serve/prompts.h"
#include "serve/reply.h"

namespace aeshna::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr std::size_t kShown = 100;  // bytes of what a client sent that the log or an answer repeats
using Clock = std::chrono::steady_clock;

constexpr auto kWithError = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kTurnedAway = 32;  // connections beyond the limit that are told so

asio::ip::address address_of(const std::string& host) {
  if (host == "localhost") return asio::ip::address_v4::loopback();
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) fail(ErrorCode::InvalidArgument, "'{}' is no IP address", host);
  return address;
}

/// What the engine has made for one request, until the connection takes it. Lives on the loop's thread.
struct Answer {
  explicit Answer(asio::io_context& io) : wake(io) {}
  ~Answer() {
    for (const std::shared_ptr<Job>& job : jobs) job->cancel();
  }
  bool ended() const {
    return std::ranges::all_of(choices, [](const Choice& c) { return c.end.has_value(); });
  }
  struct Choice {
    std::string text;  ///< that was not taken yet
    std::optional<JobEnd> end;
    bool told = false;  ///< the end was streamed
  };
  std::vector<Choice> choices;
  std::vector<std::shared_ptr<Job>> jobs;
  asio::steady_timer wake;  ///< cancelled when there is news
  bool gone = false;        ///< nobody waits for it any more
};

struct Connection {
  Connection(tcp::socket socket, std::size_t buffer_bytes) : stream(std::move(socket)), buffer(buffer_bytes) {
    error_code ignored;
    const auto remote = stream.socket().remote_endpoint(ignored);
    peer = formatted("{}:{}", remote.address().to_string(), remote.port());
    stream.socket().set_option(tcp::no_delay(true), ignored);
  }
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  std::string peer;
  bool idle = true;          ///< nothing of a request has come
  bool turned_away = false;  ///< it is only told that there are too many
  std::shared_ptr<Answer> answer;
};

/// One request and how its answer goes out.
struct Exchange {
  Connection& connection;
  const http::request<http::string_body>& request;
  bool keep = false;  ///< the connection may take another request
  Clock::time_point start = Clock::now();
};

/// What is wrong with what came, if that can be said to the client.
std::optional<ApiError> refusal_of(error_code error, const ServerOptions& options) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return ApiError(431, formatted("the header is longer than {} bytes", options.header_bytes));
  if (error == http::error::body_limit)
    return ApiError(413, formatted("the body is longer than {} bytes", options.body_bytes), {}, "body_too_large");
  if (error == http::error::end_of_stream || error == http::error::partial_message || error == beast::error::timeout)
    return std::nullopt;
  if (error.category() == make_error_code(http::error::bad_method).category())
    return ApiError(400, "this is not HTTP/1.1: " + error.message());
  return std::nullopt;
}

bool same_key(std::string_view given, std::string_view wanted) {
  // Takes as long for every key of one length.
  unsigned different = given.size() == wanted.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    different |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(wanted[i % wanted.size()]);
  return different == 0;
}

/// The host of "host:port", "[::1]:port".
std::string_view host_part(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool is_loopback(const std::string& host) { return address_of(host).is_loopback(); }

struct Server::Impl {
  Impl(Engine& e, ServerOptions o)
      : engine(e), options(std::move(o)), prompts(engine.model()), acceptor(*io), pause(*io), grace_end(*io) {
    const tcp::endpoint endpoint(address_of(options.host), options.port);
    local = endpoint.address().is_loopback();
    error_code error;
    acceptor.open(endpoint.protocol(), error);
#ifndef _WIN32
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
#endif
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) port = acceptor.local_endpoint(error).port();
    if (error) fail(ErrorCode::Io, "cannot listen on {}, port {}: {}", options.host, options.port, error.message());
    created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    asio::co_spawn(*io, accept(), asio::detached);
    thread = std::jthread([this] { run(); });
  }

  void run() {
    while (true) {
      try {
        io->run();
        return;
      } catch (const std::exception& error) {  // of a handler that ran out of memory; the others go on
        if (options.log) options.log(formatted("the server failed: {}", error.what()));
      }
    }
  }

  void stop(std::chrono::milliseconds grace) {
    if (!thread.joinable()) return;
    asio::post(*io, [this, grace] {
      stopping = true;
      error_code ignored;
      acceptor.close(ignored);
      pause.cancel();
      for (const auto& c : connections)
        if (c->idle) c->stream.close();
      if (connections.empty()) return;
      grace_end.expires_after(grace);
      grace_end.async_wait([this](error_code cancelled) {
        if (cancelled) return;
        for (const auto& c : connections) {
          if (c->answer) abandon(*c->answer);
          c->stream.close();
        }
      });
    });
    thread.join();
  }

  static void abandon(Answer& answer) {
    answer.gone = true;
    answer.wake.cancel();
  }

  // ---- connections

  asio::awaitable<void> accept() {
    while (!stopping) {
      auto [error, socket] = co_await acceptor.async_accept(kWithError);
      if (stopping) break;
      if (error) {  // no descriptors left: some will come back
        pause.expires_after(std::chrono::milliseconds(100));
        co_await pause.async_wait(kWithError);
        continue;
      }
      try {
        admit(std::move(socket));
      } catch (const std::exception& failed) {  // out of memory: the next one may find some
        if (options.log) options.log(formatted("a connection was dropped: {}", failed.what()));
      }
    }
  }

  void admit(tcp::socket socket) {
    const auto serving =
        static_cast<std::size_t>(std::ranges::count_if(connections, [](const auto& c) { return !c->turned_away; }));
    const bool full = serving >= options.connections;
    if (full && connections.size() - serving >= kTurnedAway) return;  // closes it
    auto c = std::make_shared<Connection>(std::move(socket), options.header_bytes + 16384);
    c->turned_away = full;
    connections.insert(c);
    try {
      asio::co_spawn(*io, full ? turn_away(c) : converse(c), [this, c](const std::exception_ptr&) {
        c->stream.close();
        connections.erase(c);
        if (stopping && connections.empty()) grace_end.cancel();
      });
    } catch (...) {
      connections.erase(c);
      throw;
    }
  }

  asio::awaitable<void> turn_away(std::shared_ptr<Connection> c) {
    const http::request<http::string_body> none;
    Exchange x{.connection = *c, .request = none};
    co_await refuse_request(x, ApiError(503, "too many connections; try again later", {}, "overloaded"));
    co_await linger(*c);
  }

  /// Requests one after the other, until one of both sides has enough.
  asio::awaitable<void> converse(std::shared_ptr<Connection> c) {
    while (!stopping) {
      http::request_parser<http::string_body> parser;
      parser.header_limit(options.header_bytes);
      parser.body_limit(options.body_bytes);
      Exchange x{.connection = *c, .request = parser.get()};
      c->idle = true;
      std::string broken;
      try {
        if (co_await receive(x, parser)) x.keep = co_await answer(c, x) && x.keep;
      } catch (const std::exception& error) {  // out of memory, and what should not be
        broken = error.what();
      }
      if (!broken.empty()) {
        log(x, 500, broken);
        x.keep = false;
        co_await send(x, 500, error_json(ApiError(500, "the server failed: " + broken)));
      }
      c->answer.reset();
      if (!x.keep) break;
    }
    co_await linger(*c);
  }

  /// Ends what we send, and takes what still comes for a moment: closing at once would take back what the client has not read yet.
  asio::awaitable<void> linger(Connection& c) {
    error_code ignored;
    c.stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (ignored || stopping) co_return;
    c.idle = true;
    c.stream.expires_after(std::chrono::seconds(1));
    std::array<char, 4096> rest;
    while (true) {
      const auto [error, count] = co_await c.stream.async_read_some(asio::buffer(rest), kWithError);
      if (error) co_return;
    }
  }

  /// Header and body of a request; false: none, or it was refused already.
  asio::awaitable<bool> receive(Exchange& x, http::request_parser<http::string_body>& parser) {
    Connection& c = x.connection;
    c.stream.expires_after(options.idle);
    const auto [error, count] = co_await http::async_read_header(c.stream, c.buffer, parser, kWithError);
    c.idle = false;
    x.start = Clock::now();
    if (error) {
      if (const auto refusal = refusal_of(error, options)) co_await refuse_request(x, *refusal);
      co_return false;
    }
    // What is refused before its body is read can be followed by another request only if it has none for certain.
    x.keep =
        x.request.keep_alive() && !stopping && parser.is_done() && x.request.count(http::field::transfer_encoding) == 0;
    if (const auto refusal = inspect(x.request)) {
      x.keep = co_await refuse_request(x, *refusal) && x.keep;
      co_return false;
    }
    if (!parser.is_done()) {
      c.stream.expires_after(options.transfer);
      if (beast::iequals(x.request[http::field::expect], "100-continue")) {
        const http::response<http::empty_body> go_on(http::status::continue_, 11);
        const auto [failed, sent] = co_await http::async_write(c.stream, go_on, kWithError);
        if (failed) co_return false;  // x.keep is false so far
      }
      const auto [failed, taken] = co_await http::async_read(c.stream, c.buffer, parser, kWithError);
      if (failed) {
        if (const auto refusal = refusal_of(failed, options)) co_await refuse_request(x, *refusal);
        co_return false;
      }
      x.keep = x.request.keep_alive() && !stopping;
    }
    co_return true;
  }

  // ---- requests

  struct Route {
    http::verb verb;
    std::string_view path;
    bool open;  ///< no key is asked for
    asio::awaitable<bool> (Impl::*answer)(std::shared_ptr<Connection> c, Exchange& x);
  };
  static constexpr std::string_view kModels = "/v1/models/";
  static std::span<const Route> routes() {
    static constexpr Route all[] = {{http::verb::get, "/health", true, &Impl::health},
                                    {http::verb::get, "/v1/models", false, &Impl::list_models},
                                    {http::verb::get, kModels, false, &Impl::show_model},
                                    {http::verb::post, "/v1/completions", false, &Impl::completions},
                                    {http::verb::post, "/v1/chat/completions", false, &Impl::chat}};
    return all;
  }
  static std::string_view path_of(const http::request<http::string_body>& request) {
    const std::string_view target = request.target();
    return target.substr(0, target.find('?'));
  }
  static const Route* route_of(std::string_view path) {
    for (const Route& route : routes())
      if (route.path == path || (route.path == kModels && path.starts_with(kModels))) return &route;
    return nullptr;
  }
  bool preflight(const http::request<http::string_body>& request) const {
    return !options.cors.empty() && request.method() == http::verb::options;
  }

  /// What can be refused before the body is read.
  std::optional<ApiError> inspect(const http::request<http::string_body>& request) const {
    if (request.version() != 10 && request.version() != 11) return ApiError(505, "this server speaks HTTP/1.1");
    const auto host = request.find(http::field::host);
    if (host == request.end() && request.version() == 11) return ApiError(400, "the request has no Host");
    // What proxies and servers can read in two ways is how one slips requests past the other.
    if (request.count(http::field::host) > 1) return ApiError(400, "the request has more than one Host");
    const auto codings = request.count(http::field::transfer_encoding);
    if (codings > 1 || (codings == 1 && !beast::iequals(request[http::field::transfer_encoding], "chunked")))
      return ApiError(400, "the only Transfer-Encoding here is chunked");
    // A page elsewhere can make its name mean this machine, and so reach a server that only this machine can reach.
    if (local && options.api_key.empty() && host != request.end()) {
      const std::string_view name = host_part(host->value());
      error_code none;
      const auto address = asio::ip::make_address(std::string(name), none);
      if (!beast::iequals(name, "localhost") && (none || !address.is_loopback()))
        return ApiError(403,
                        formatted("the Host is '{}': without --api-key it must be localhost", shown(name, kShown)));
    }
    if (preflight(request)) return std::nullopt;
    const Route* route = route_of(path_of(request));
    if (route == nullptr)
      return ApiError(404, formatted("there is no {}", shown(path_of(request), kShown)), {}, "not_found");
    if (!route->open && !options.api_key.empty()) {
      std::string_view given = request[http::field::authorization];
      constexpr std::string_view scheme = "Bearer ";
      const bool bearer = given.size() > scheme.size() && beast::iequals(given.substr(0, scheme.size()), scheme);
      if (!bearer || !same_key(given.substr(scheme.size()), options.api_key))
        return ApiError(401, "the API key is missing or wrong: send 'Authorization: Bearer KEY'", {},
                        "invalid_api_key");
    }
    if (request.method() != route->verb && !(route->verb == http::verb::get && request.method() == http::verb::head))
      return ApiError(405, formatted("{} takes {}", route->path, std::string_view(http::to_string(route->verb))));
    if (route->verb == http::verb::post) {
      // Pages elsewhere may send other types without asking.
      const std::string_view type = request[http::field::content_type];
      if (!beast::iequals(type.substr(0, type.find_first_of("; ")), "application/json"))
        return ApiError(415, "the Content-Type must be application/json");
    }
    return std::nullopt;
  }

  /// False: the connection is of no more use.
  asio::awaitable<bool> answer(std::shared_ptr<Connection> c, Exchange& x) {
    if (preflight(x.request)) co_return co_await send(x, 204, "");
    co_return co_await (this->*route_of(path_of(x.request))->answer)(c, x);
  }

  asio::awaitable<bool> health(std::shared_ptr<Connection>, Exchange& x) {
    const std::string failure = engine.failure();
    if (failure.empty()) co_return co_await send(x, 200, R"({"status":"ok"})");
    co_return co_await refuse_request(x, ApiError(503, failure, {}, "engine_failed"));
  }
  asio::awaitable<bool> list_models(std::shared_ptr<Connection>, Exchange& x) {
    co_return co_await send(x, 200, models_json(engine.model().id, created));
  }
  asio::awaitable<bool> show_model(std::shared_ptr<Connection>, Exchange& x) {
    const std::string_view id = path_of(x.request).substr(kModels.size());
    if (id == engine.model().id) co_return co_await send(x, 200, model_json(id, created));
    co_return co_await refuse_request(x, no_model(id));
  }
  ApiError no_model(std::string_view id) const {
    return ApiError(404, formatted("there is no model '{}' here, but '{}'", id, engine.model().id), "model",
                    "model_not_found");
  }
  asio::awaitable<bool> completions(std::shared_ptr<Connection> c, Exchange& x) {
    return complete(std::move(c), x, Endpoint::Completions);
  }
  asio::awaitable<bool> chat(std::shared_ptr<Connection> c, Exchange& x) {
    return complete(std::move(c), x, Endpoint::Chat);
  }

  asio::awaitable<bool> complete(std::shared_ptr<Connection> c, Exchange& x, Endpoint endpoint) {
    ApiRequest request;
    std::vector<PromptIds> texts;
    std::optional<ApiError> refusal;
    try {
      request = parse_request(endpoint, x.request.body(), options.sampling);
      if (!request.model.empty() && request.model != engine.model().id) throw no_model(request.model);
      texts = prompts.of(request);
      c->answer = start(request, texts);
    } catch (const ApiError& error) {
      refusal = error;
    }
    if (refusal) co_return co_await refuse_request(x, *refusal);
    asio::co_spawn(*io, watch(c, c->answer), asio::detached);
    const bool sound =
        co_await (request.stream ? stream(x, request, *c->answer, texts) : gather(x, request, *c->answer, texts));
    error_code ignored;
    c->stream.socket().cancel(ignored);  // the watch
    co_return sound;
  }

  /// Hands a request's jobs to the engine.
  std::shared_ptr<Answer> start(const ApiRequest& request, const std::vector<PromptIds>& texts) {
    auto answer = std::make_shared<Answer>(*io);
    std::uint64_t seed = request.sampling.seed;
    if (!request.seeded) {
      std::random_device random;
      seed = (std::uint64_t{random()} << 32) | random();
    }
    const std::size_t n = static_cast<std::size_t>(request.n);
    answer->choices.resize(texts.size() * n);
    for (std::size_t i = 0; i < answer->choices.size(); ++i) {
      auto job = std::make_shared<Job>();
      job->prompt = texts[i / n].ids;
      job->sampling = request.sampling;
      job->sampling.seed = seed + i;
      job->max_tokens = request.max_tokens.value_or(endpoint_tokens(request.endpoint));
      job->stop = request.stop;
      // The loop outlives its last word from the engine; the answer need not.
      job->on_text = [loop = io, weak = std::weak_ptr(answer), i](std::string_view text) {
        asio::post(*loop, [weak, i, more = std::string(text)] {
          const auto a = weak.lock();
          if (!a) return;
          a->choices[i].text += more;
          a->wake.cancel();
        });
      };
      job->on_end = [loop = io, weak = std::weak_ptr(answer), i](const JobEnd& end) {
        asio::post(*loop, [weak, i, end] {
          const auto a = weak.lock();
          if (!a) return;
          a->choices[i].end = end;
          a->wake.cancel();
        });
      };
      answer->jobs.push_back(std::move(job));
    }
    switch (engine.submit(answer->jobs)) {
      case Engine::Admission::Taken:
        return answer;
      case Engine::Admission::Full:
        throw ApiError(503, "too many requests wait; try again later", {}, "overloaded");
      case Engine::Admission::Never:
        refuse(request.n > 1 ? "n" : "prompt", "{} answers in one request are more than can wait here",
               answer->choices.size());
      case Engine::Admission::Failed:
        break;
    }
    throw ApiError(503, engine.failure(), {}, "engine_failed");
  }

  /// As OpenAI does: completions are short unless asked otherwise, chats end by themselves or with the context.
  static std::int64_t endpoint_tokens(Endpoint endpoint) {
    return endpoint == Endpoint::Completions ? 16 : std::int64_t{1} << 40;
  }

  /// Notices that the client has closed its end.
  asio::awaitable<void> watch(std::shared_ptr<Connection> c, std::weak_ptr<Answer> weak) {
    const auto [error] = co_await c->stream.socket().async_wait(tcp::socket::wait_read, kWithError);
    if (error) co_return;
    error_code failed;
    // More to read is the next request, which comes when this one is done.
    if (c->stream.socket().available(failed) > 0 && !failed) co_return;
    if (const auto answer = weak.lock()) abandon(*answer);
  }

  static ApiError failed(const Error& error) {
    return ApiError(error.code() == ErrorCode::Io ? 503 : 500, error.message(), {},
                    error.code() == ErrorCode::Io ? "shutting_down" : "generation_failed");
  }

  static Usage usage_of(const Answer& answer, const std::vector<PromptIds>& texts) {
    Usage usage;
    for (const PromptIds& text : texts) usage.prompt += text.ids.size();
    for (const Answer::Choice& choice : answer.choices)
      if (choice.end) usage.completion += choice.end->tokens;
    return usage;
  }

  void log_usage(const Exchange& x, int status, Usage usage, std::string_view more = "") {
    log(x, status, formatted("{}+{} tokens{}", usage.prompt, usage.completion, more));
  }

  /// The whole answer at once.
  asio::awaitable<bool> gather(Exchange& x, const ApiRequest& request, Answer& answer,
                               const std::vector<PromptIds>& texts) {
    while (!answer.ended() && !answer.gone) {
      answer.wake.expires_at(Clock::time_point::max());
      co_await answer.wake.async_wait(kWithError);
    }
    if (answer.gone) {
      log(x, 499, "the client has left");
      co_return false;
    }
    std::vector<ChoiceText> choices;
    for (std::size_t i = 0; i < answer.choices.size(); ++i) {
      const Answer::Choice& choice = answer.choices[i];
      if (choice.end->error) co_return co_await refuse_request(x, failed(*choice.end->error));
      const PromptIds& prompt = texts[i / static_cast<std::size_t>(request.n)];
      choices.push_back({.text = prompt.text + choice.text, .end = choice.end->end});
    }
    const Usage usage = usage_of(answer, texts);
    log_usage(x, 200, usage);
    co_return co_await send(x, 200, answer_json(reply_head(request, engine.model().id), choices, usage));
  }

  /// Server-sent events as the text comes.
  asio::awaitable<bool> stream(Exchange& x, const ApiRequest& request, Answer& answer,
                               const std::vector<PromptIds>& texts) {
    http::response<http::empty_body> response(http::status::ok, x.request.version());
    response.set(http::field::content_type, "text/event-stream");
    response.set(http::field::cache_control, "no-cache");
    decorate(response, x);
    if (x.request.version() == 11) {
      response.chunked(true);
    } else {
      x.keep = false;
    }
    response.keep_alive(x.keep);
    http::response_serializer<http::empty_body> serializer(response);
    Connection& c = x.connection;
    c.stream.expires_after(options.transfer);
    const auto [error, count] = co_await http::async_write_header(c.stream, serializer, kWithError);
    if (error) co_return false;

    const ReplyHead head = reply_head(request, engine.model().id);
    std::string out;
    for (std::size_t i = 0; i < answer.choices.size(); ++i) {
      out += first_event(head, i);
      const PromptIds& prompt = texts[i / static_cast<std::size_t>(request.n)];
      if (!prompt.text.empty()) out += text_event(head, i, prompt.text);
    }
    std::optional<ApiError> failure;
    bool open = true;
    while (true) {
      for (std::size_t i = 0; i < answer.choices.size() && !failure; ++i) {
        Answer::Choice& choice = answer.choices[i];
        if (!choice.text.empty()) out += text_event(head, i, std::exchange(choice.text, {}));
        if (!choice.end || choice.told) continue;
        choice.told = true;
        if (choice.end->error) {
          failure = failed(*choice.end->error);
          out += error_event(*failure);
        } else {
          out += end_event(head, i, choice.end->end);
        }
      }
      open = !failure && !answer.ended();
      const Usage usage = usage_of(answer, texts);
      if (!open && !failure) {
        if (request.include_usage) out += usage_event(head, usage);
        out += kDoneEvent;
      }
      if (!out.empty() && !co_await send_event(x, std::exchange(out, {}))) answer.gone = true;
      if (answer.gone) {
        log_usage(x, 200, usage, ", the client has left");
        co_return false;
      }
      if (!open) {
        if (x.request.version() == 11) {
          c.stream.expires_after(options.transfer);
          co_await asio::async_write(c.stream, http::make_chunk_last(), kWithError);
        }
        log_usage(x, 200, usage, failure ? ", failed: " + failure->message : std::string());
        co_return !failure;
      }
      if (std::ranges::any_of(answer.choices,
                              [](const auto& choice) { return !choice.text.empty() || (choice.end && !choice.told); }))
        continue;  // it came while the last event was written
      answer.wake.expires_after(options.keep_alive);
      const auto [news] = co_await answer.wake.async_wait(kWithError);
      if (!news) out = ": still at work\n\n";
    }
  }

  asio::awaitable<bool> send_event(Exchange& x, std::string text) {
    Connection& c = x.connection;
    c.stream.expires_after(options.transfer);
    if (x.request.version() == 11) {
      const auto [error, count] =
          co_await asio::async_write(c.stream, http::make_chunk(asio::buffer(text)), kWithError);
      co_return !error;
    }
    const auto [error, count] = co_await asio::async_write(c.stream, asio::buffer(text), kWithError);
    co_return !error;
  }

  // ---- answers

  template <class Response>
  void decorate(Response& response, const Exchange& x) const {
    response.set(http::field::server, "aeshna");
    if (options.cors.empty()) return;
    response.set(http::field::access_control_allow_origin, options.cors);
    if (options.cors != "*") response.set(http::field::vary, "Origin");
    if (x.request.method() != http::verb::options) return;
    response.set(http::field::access_control_allow_methods, "GET, POST");
    response.set(http::field::access_control_allow_headers, "Authorization, Content-Type");
  }

  asio::awaitable<bool> refuse_request(Exchange& x, ApiError error) {
    log(x, error.status, error.message);
    co_return co_await send(x, static_cast<unsigned>(error.status), error_json(error));
  }

  /// Errors of sending mean that the client has left.
  asio::awaitable<bool> send(Exchange& x, unsigned status, std::string body) {
    http::response<http::string_body> response(static_cast<http::status>(status), 11);
    decorate(response, x);
    if (status != 204) response.set(http::field::content_type, "application/json");
    if (status == 401) response.set(http::field::www_authenticate, "Bearer");
    if (status == 503) response.set(http::field::retry_after, "1");
    if (status == 405) {
      if (const Route* route = route_of(path_of(x.request)))
        response.set(http::field::allow, http::to_string(route->verb));
    }
    response.keep_alive(x.keep);
    if (status != 204) {
      response.body() = std::move(body);
      response.prepare_payload();
      if (x.request.method() == http::verb::head) response.body().clear();  // its length stays
    }
    x.connection.stream.expires_after(options.transfer);
    const auto [error, count] = co_await http::async_write(x.connection.stream, response, kWithError);
    co_return !error;
  }

  void log(const Exchange& x, int status, std::string_view what) const {
    if (!options.log) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - x.start).count();
    const std::string_view method = x.request.method_string();
    options.log(formatted("{} {} {} {} {:.2f} s: {}", x.connection.peer, shown(method, kShown),
                          shown(path_of(x.request), kShown), status, seconds, shown(what, kShown)));
  }

  Engine& engine;
  const ServerOptions options;
  const Prompts prompts;
  std::int64_t created = 0;
  std::uint16_t port = 0;
  bool local = true;
  /// Shared with the jobs, whose last word may come when the server is gone.
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  // From here on used by the loop's thread alone.
  tcp::acceptor acceptor;
  asio::steady_timer pause, grace_end;
  bool stopping = false;
  std::set<std::shared_ptr<Connection>> connections;
  std::jthread thread;
};

Server::Server(Engine& engine, ServerOptions options) : impl_(std::make_unique<Impl>(engine, std::move(options))) {}
Server::~Server() { stop(); }
void Server::stop(std::chrono::milliseconds grace) { impl_->stop(grace); }
std::uint16_t Server::port() const { return impl_->port; }
std::string Server::url() const {
  const auto address = address_of(impl_->options.host);
  const std::string name = address.to_string();
  return formatted("http://{}:{}", address.is_v6() ? '[' + name + ']' : name, port());
}

}  // namespace aeshna::serve
