// heddle: the command line. Usage errors and bad input exit with 2, failures with 1, signals with
// 128 + signal.
#include <CLI/CLI.hpp>
#include <csignal>
#include <new>
#include <string_view>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/output.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadInput = 2;
constexpr int kSignalled = 128;

int report(int exit_code, std::string_view message) {
  heddle::write_stderr(fmt::format("heddle: error: {}\n", message));
  return exit_code;
}

// For an unknown command, lists the known ones; otherwise CLI11's own message.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = "heddle";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const std::vector<std::string> rest = command->remaining();
  std::string known;  // a group of options is a subcommand without a name
  for (const CLI::App* other : command->get_subcommands({}))
    if (!other->get_name().empty()) known += (known.empty() ? "" : ", ") + other->get_name();
  const bool is_required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!is_required || rest.empty() || (known.empty() && command->get_subcommands({}).empty()))
    return fmt::format("{}; see {} --help", error.what(), name);
  const std::string given = heddle::printable_text(rest.front());
  if (given.starts_with('-')) return fmt::format("{} has no option {}; see {} --help", name, given, name);
  if (known.empty()) return fmt::format("{} takes no \"{}\" by itself; see {} --help", name, given, name);
  return fmt::format("{} has no command \"{}\", only {}; see {} --help", name, given, known, name);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // so that a closed pipe is an error of write(), with a message
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
    return report(kBadInput, explain(app, error));
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
