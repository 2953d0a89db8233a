// heddle: the command line. Usage errors and bad input exit with 2, failures with 1, signals with
// 128 + signal.
#include <CLI/CLI.hpp>
#include <csignal>
#include <new>
#include <string_view>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadInput = 2;
constexpr int kSignalled = 128;

int report(int exit_code, std::string_view message) {
  heddle::write_stderr(fmt::format("heddle: error: {}\n", message));
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is then an error of write(), with a message
  CLI::App app{"heddle: an inference engine in which communication is part of the computation"};
  app.name("heddle");
  app.set_version_flag("--version", "heddle " HEDDLE_VERSION);
  app.footer("Exit status: 0 done, 1 the machine failed, 2 bad input or usage, 130 interrupted.");
  app.require_subcommand(1);
  heddle::add_chat(app);
  heddle::add_generate(app);
  heddle::add_score(app);
  heddle::add_template(app);
  heddle::add_tokenize(app);
  heddle::add_inspect(app);
  heddle::add_synth(app);
  heddle::add_doctor(app);
  heddle::add_launch(app);
  heddle::add_bench(app);
  heddle::add_wafer(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const auto commands = app.get_subcommands();
    return report(kBadInput, fmt::format("{}; see heddle {}--help", error.what(),
                                         commands.empty() ? "" : commands[0]->get_name() + " "));
  } catch (const heddle::InputError& error) {
    return report(kBadInput, error.what());
  } catch (const heddle::Interrupted& interrupted) {
    return kSignalled + interrupted.signal;
  } catch (const std::bad_alloc&) {
    return report(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return report(kFailure, error.what());
  }
}
