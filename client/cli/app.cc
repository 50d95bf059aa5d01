#include "client/cli/app.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "client/cli/option_flags.h"
#include "client/cli/options.h"
#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

CLI::App* AddCommand(CLI::App& app, Arguments& args, Command command, const std::string& name,
                     const std::string& help, const std::string& examples) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->footer("Examples:\n" + examples +
              "\nThe options of `spaidctl --help` (address, TLS, --json, ...) may follow, too.");
  sub->parse_complete_callback([&args, command] { args.command = command; });
  return sub;
}

void AddMatrix(CLI::App* app, MatrixArgs& args) {
  app->add_option("matrix", args.matrix,
                  "Matrix Market file (also .gz), gallery:NAME[:SIZE], or the handle matrices/...")
      ->required()
      ->type_name("A");
  app->add_flag("--sum-duplicates", args.sum_duplicates,
                "Sum entries that the file gives twice, instead of refusing them");
}

// Adds --engine for those to build with, and `with_none` for solving without, and the engines'
// options.
void AddEngine(CLI::App* app, PreconditionerSpec& spec, bool with_none) {
  std::vector<Engine> engines;
  for (const EngineTraits& engine : kEngines) {
    if (with_none || engine.engine != Engine::kNone) engines.push_back(engine.engine);
  }
  AddChoice(app, "--engine", spec.engine, "Preconditioner", engines);
  AddEngineFlags(app, spec);
}

void AddLimits(CLI::App* app, LimitArgs& args) {
  app->add_option("--max-queue", args.max_queue_s, "Give up after waiting this long in the queue")
      ->check(Positive())
      ->type_name("SECONDS");
  app->add_option("--max-run", args.max_run_s, "Stop the job after running this long")
      ->check(Positive())
      ->type_name("SECONDS");
  AddChoice(app, "--priority", args.priority,
            "Class of the job: of your time on the devices they get 16, 4 and 1 part",
            {Priority::kInteractive, Priority::kNormal, Priority::kBulk});
}

void AddPlot(CLI::App* app, std::string& plot) {
  app->add_option("--plot", plot, "Write a plot of the residual over iterations here, as SVG")
      ->type_name("FILE.svg");
}

void AddGlobals(CLI::App& app, GlobalArgs& args) {
  AddServer(app, args.client);
  app.add_option("--timeout", args.timeout_s,
                 "Deadline of the whole call: upload, queue, run and download")
      ->check(Positive())
      ->type_name("SECONDS")
      ->group("Server");
  app.add_flag("--json", args.json, "Exactly one JSON object on stdout, nothing else")
      ->group("Output");
  AddLooks(app, args);
}

void AddSolve(CLI::App& app, Arguments& args) {
  SolveArgs& s = args.solve;
  CLI::App* sub = AddCommand(
      app, args, Command::kSolve, "solve", "Solve A x = b and say honestly how it ended",
      "  spaidctl solve A.mtx                             b = A*1, engine and method chosen\n"
      "  spaidctl solve A.mtx.gz --rhs=b.mtx --out=x.mtx  your right-hand side, keep the solution\n"
      "  spaidctl solve gallery:elasticity:20 --engine=static-spai --pattern-power=2\n"
      "  spaidctl solve A.mtx --engine=jacobi --method=cg --rtol=1e-10 --json\n"
      "  spaidctl solve gallery:poisson:40 --engine=afsai --k-max=20\n"
      "  spaidctl solve gallery:convdiff:30 --engine=dynamic-spai --column-tol=0.4\n"
      "  spaidctl solve gallery:poisson:40 --engine=amg\n"
      "  spaidctl solve A.mtx --plot=A.svg                how the residual fell, for a report\n"
      "  spaidctl solve A.mtx --preconditioner=preconditioners/... --reuse=auto   the next time "
      "step\n"
      "Exit codes: 0 converged, 3 did not converge (the outcome says why), 1 error, 2 wrong "
      "usage.");
  AddMatrix(sub, s.matrix);
  sub->add_option("--rhs", s.rhs, "ones: b = A*1; random: b = A*x, x seeded in [-1, 1]; or a file")
      ->type_name("FILE|ones|random")
      ->capture_default_str();
  sub->add_option("--seed", s.seed, "Seed of --rhs=random")->capture_default_str()->type_name("N");
  sub->add_option("--rhs-count", s.rhs_count, "How many right-hand sides --rhs=random makes")
      ->check(Whole(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  AddSolveFlags(sub, s.options);
  sub->add_option("--initial-guess", s.initial_guess, "Start from this x instead of 0")
      ->type_name("FILE");
  sub->add_option("--null-space", s.null_space,
                  "Of a singular A, projected out: auto: constants where the matrix says so; or a "
                  "file of vectors z with A z = 0")
      ->type_name("FILE|auto|constants|none")
      ->capture_default_str();
  sub->add_option("--out", s.out, "Write the solution here (also .gz)")->type_name("FILE");
  AddPlot(sub, s.plot);
  sub->add_flag("--history", s.history, "With --json: every residual, too");
  sub->add_flag("--explain", s.explain,
                "With --engine=auto: say what it began with and why, what it went on to, and what "
                "the next solve on this pattern begins with");
  AddEngine(sub, s.engine, /*with_none=*/true);
  sub->add_option("--preconditioner", s.options.preconditioner,
                  "Use this one (handle preconditioners/...) instead of building")
      ->type_name("HANDLE")
      ->excludes("--engine");
  AddReuseFlags(sub, s.options.reuse);
  sub->get_option("--reuse")->needs("--preconditioner");
  sub->get_option("--reuse-factor")->needs("--reuse");
  AddLimits(sub, s.limits);
  sub->add_flag("--detach", s.detach, "Print the job's name and leave; see watch and jobs")
      ->excludes("--out")
      ->excludes("--plot");
}

void AddBuild(CLI::App& app, Arguments& args) {
  BuildArgs& b = args.build;
  CLI::App* sub = AddCommand(
      app, args, Command::kBuild, "build", "Build a preconditioner and keep it on the server",
      "  spaidctl build A.mtx --engine=static-spai                the handle is on the first line\n"
      "  spaidctl build A.mtx --pattern-power=2 --precond-out=M.mtx.gz\n"
      "  spaidctl build gallery:poisson:20 --engine=amg --precond-out=M    parts, and cycle.py\n"
      "  spaidctl build gallery:circuit --row-match --local-solver=qr --json");
  AddMatrix(sub, b.matrix);
  b.engine.engine = Engine::kStaticSpai;
  AddEngine(sub, b.engine, /*with_none=*/false);
  sub->add_option(
         "--precond-out", b.precond_out,
         "Write M, or G of M = G'G, here as Matrix Market (also .gz); of amg, whose M is a "
         "cycle: a folder, of its parts and of cycle.py, which applies them")
      ->type_name("FILE");
  AddLimits(sub, b.limits);
  sub->add_flag("--detach", b.detach, "Print the job's name and leave; see watch and jobs")
      ->excludes("--precond-out");
}

void AddEstimateAndUpload(CLI::App& app, Arguments& args) {
  CLI::App* estimate =
      AddCommand(app, args, Command::kEstimate, "estimate",
                 "Say what a build would cost, from the pattern alone",
                 "  spaidctl estimate A.mtx --pattern-power=2\n"
                 "  spaidctl estimate pattern.mtx --engine=static-spai   a pattern file will do");
  AddMatrix(estimate, args.estimate.matrix);
  args.estimate.engine.engine = Engine::kStaticSpai;
  AddEngine(estimate, args.estimate.engine, /*with_none=*/false);

  CLI::App* upload = AddCommand(
      app, args, Command::kUpload, "upload", "Store a matrix on the server and diagnose it",
      "  spaidctl upload A.mtx --label=bridge     then: spaidctl solve matrices/... --rhs=b.mtx\n"
      "  spaidctl upload P.mtx --pattern-only     a pattern for --pattern=matrices/...");
  AddMatrix(upload, args.upload.matrix);
  upload->add_option("--label", args.upload.label, "A name for people")->type_name("TEXT");
  upload->add_flag("--pattern-only", args.upload.pattern_only, "Send no values");
}

void AddLists(CLI::App& app, Arguments& args) {
  CLI::App* matrices = AddCommand(
      app, args, Command::kMatrices, "matrices", "List, show or delete the matrices on the server",
      "  spaidctl matrices                          all of them\n"
      "  spaidctl matrices matrices/...             one, with its diagnosis\n"
      "  spaidctl matrices matrices/... --delete");
  auto* matrix = matrices->add_option("name", args.list.name, "Handle of one")->type_name("HANDLE");
  matrices->add_flag("--delete", args.list.remove, "Delete it")->needs(matrix);

  CLI::App* preconditioners =
      AddCommand(app, args, Command::kPreconditioners, "preconditioners",
                 "List, show, download or delete the preconditioners on the server",
                 "  spaidctl preconditioners\n"
                 "  spaidctl preconditioners preconditioners/... --download=M.mtx\n"
                 "  spaidctl preconditioners preconditioners/... --delete");
  auto* name =
      preconditioners->add_option("name", args.list.name, "Handle of one")->type_name("HANDLE");
  auto* download = preconditioners
                       ->add_option("--download", args.list.download,
                                    "Write M, or G of M = G'G, here as Matrix Market (also .gz); "
                                    "of amg: a folder, as build --precond-out")
                       ->type_name("FILE")
                       ->needs(name);
  preconditioners->add_flag("--delete", args.list.remove, "Delete it")
      ->needs(name)
      ->excludes(download);

  CLI::App* jobs = AddCommand(app, args, Command::kJobs, "jobs", "List jobs, or show one",
                              "  spaidctl jobs\n"
                              "  spaidctl jobs --state=running\n"
                              "  SPAID_ADMIN_TOKEN=... spaidctl jobs --all-tenants\n"
                              "  spaidctl jobs jobs/...");
  auto* job = jobs->add_option("name", args.list.name, "Name of one")->type_name("JOB");
  jobs->add_flag("--all-tenants", args.list.all_tenants, "Everybody's (for administrators)")
      ->excludes(job);
  const auto states = Choices({JobState::kQueued, JobState::kRunning, JobState::kSucceeded,
                               JobState::kFailed, JobState::kCancelled});
  std::vector<std::string> names;
  for (const auto& [text, unused] : states) names.push_back(text);
  jobs->add_option_function<std::string>(
          "--state",
          [&args, states](const std::string& text) {
            for (const auto& [name_of, state] : states) {
              if (name_of == text) args.list.state = state;
            }
          },
          "Only those in this state")
      ->check(CLI::IsMember(names))
      ->excludes(job);
}

void AddJobControl(CLI::App& app, Arguments& args) {
  CLI::App* watch = AddCommand(
      app, args, Command::kWatch, "watch", "Follow a job to its end",
      "  spaidctl watch jobs/...                  all it did so far, then live\n"
      "  spaidctl watch jobs/... --first-event=40\n"
      "  spaidctl watch jobs/... --out=x.mtx      and fetch what a detached solve found\n"
      "Exit codes: 0 the job succeeded (of a solve: converged), 3 the solve did not converge,\n"
      "1 the job failed or was cancelled. Ctrl-C stops watching, not the job: see cancel.");
  watch->add_option("job", args.watch.job, "Name of the job")->required()->type_name("JOB");
  watch->add_option("--first-event", args.watch.first_event, "Start from this event")
      ->check(Whole(1, int64_t{1} << 62))
      ->type_name("N")
      ->capture_default_str();

  watch->add_option("--out", args.watch.out, "Write the solution to this Matrix Market file")
      ->type_name("FILE");

  CLI::App* cancel =
      AddCommand(app, args, Command::kCancel, "cancel", "Stop a queued or running job",
                 "  spaidctl cancel jobs/...\n"
                 "  SPAID_ADMIN_TOKEN=... spaidctl cancel jobs/...   anybody's");
  cancel->add_option("job", args.cancel.job, "Name of the job")->required()->type_name("JOB");
}

// Adds the matrix and what is compared on it.
void AddComparison(CLI::App* sub, CompareArgs& c) {
  AddMatrix(sub, c.matrix);
  sub->add_option("--powers", c.powers, "Pattern powers of static SPAI and FSAI to try")
      ->delimiter(',')
      ->check(Whole(1, 16))
      ->type_name("P,...")
      ->default_str("1,2");
  sub->add_option("--rhs", c.rhs, "ones, random, or a file (as for solve)")
      ->type_name("FILE|ones|random")
      ->capture_default_str();
  sub->add_option("--seed", c.seed, "Seed of --rhs=random")->capture_default_str()->type_name("N");
  AddSolveFlags(sub, c.options, {"--rtol", "--max-iterations", "--restart"});
  sub->add_option("--max-setup", c.max_setup_s,
                  "Leave out what the server predicts to build longer than this")
      ->check(Positive())
      ->type_name("SECONDS")
      ->capture_default_str();
  AddEngineFlags(sub, c.engine, {"--pattern-power", "--block-size", "--learned"});
  AddLimits(sub, c.limits);
}

void AddCompare(CLI::App& app, Arguments& args) {
  CompareArgs& c = args.compare;
  CLI::App* sub =
      AddCommand(app, args, Command::kCompare, "compare",
                 "Solve with every engine and method that fits; one table, the best total marked",
                 "  spaidctl compare A.mtx\n"
                 "  spaidctl compare gallery:convdiff:30 --powers=1 --rhs=ones\n"
                 "Exit codes: 0 at least one converged, 3 none did, 1 error, 2 wrong usage.");
  AddComparison(sub, c);
  AddPlot(sub, c.plot);
}

void AddReport(CLI::App& app, Arguments& args) {
  ReportArgs& r = args.report;
  CLI::App* sub = AddCommand(
      app, args, Command::kReport, "report",
      "Write a page about a matrix and what solves it, to be sent around",
      "  spaidctl report A.mtx --out=A.html\n"
      "  spaidctl report A.mtx.gz --rhs=b.mtx --rtol=1e-10 -o A.html\n"
      "  spaidctl report gallery:convdiff:30 --powers=1 --ritz-steps=100 --out=convdiff.html\n"
      "The page is one file without scripts that fetches nothing: pattern, diagnosis, the\n"
      "table of compare with its curves, AUTO's choice, quality and spectrum of each M, and the\n"
      "command lines to repeat it. It needs the matrix itself, not its handle.\n"
      "Exit codes: 0 at least one converged, 3 none did, 1 error, 2 wrong usage.");
  AddComparison(sub, r.compare);
  sub->get_option("--max-run")->default_str("60");
  sub->add_option("-o,--out", r.out, "Write the page here (also .gz); -: standard output")
      ->required()
      ->type_name("FILE.html");
  sub->add_option(
         "--ritz-steps", r.ritz_steps,
         "Steps of Lanczos or Arnoldi for the spectrum of A, and of A with each M; 0: none")
      ->check(Whole(0, 200))
      ->type_name("K")
      ->capture_default_str();
}

void AddLocal(CLI::App& app, Arguments& args) {
  AddCommand(app, args, Command::kInfo, "info",
             "Show the server: version, devices, engines, limits, queue",
             "  spaidctl info\n  spaidctl --address=gpu7:7433 --tls-ca=ca.pem info --json");
  CLI::App* gallery = AddCommand(
      app, args, Command::kGallery, "gallery", "List the test matrices, or write one to a file",
      "  spaidctl gallery                                   the families\n"
      "  spaidctl gallery elasticity --size=20 --out=E.mtx.gz\n"
      "  spaidctl solve gallery:elasticity:20               without a file");
  std::vector<std::string> families;
  for (const gallery::Family& f : gallery::Families()) families.emplace_back(f.name);
  auto* family = gallery->add_option("family", args.gallery.family, "Which one")
                     ->type_name("NAME")
                     ->check(CLI::IsMember(families));
  gallery->add_option("--size", args.gallery.size, "Its size (the list says of what)")
      ->check(Whole(1, 2147483647))
      ->type_name("N")
      ->needs(family);
  gallery->add_option("--out", args.gallery.out, "Write it here as Matrix Market (also .gz)")
      ->type_name("FILE")
      ->needs(family);
  CLI::App* completion =
      AddCommand(app, args, Command::kCompletion, "completion", "Print a shell completion script",
                 "  spaidctl completion bash > /etc/bash_completion.d/spaidctl\n"
                 "  spaidctl completion zsh > \"${fpath[1]}/_spaidctl\"\n"
                 "  spaidctl completion fish > ~/.config/fish/completions/spaidctl.fish");
  completion->add_option("shell", args.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace

std::string_view Version() { return SPAID_VERSION; }

std::unique_ptr<CLI::App> MakeApp(Arguments& args) {
  auto app = std::make_unique<CLI::App>(
      "spaidctl talks to spaid, the daemon that builds sparse approximate inverse preconditioners\n"
      "and solves sparse linear systems.",
      "spaidctl");
  app->fallthrough();
  app->require_subcommand(1, 1);
  app->set_version_flag("--version", "spaidctl " + std::string(Version()));
  app->get_formatter()->column_width(34);
  app->footer(
      "Start here:\n"
      "  spaidctl info                      is the daemon there, and what can it do?\n"
      "  spaidctl solve gallery:poisson     a first solve without any file\n"
      "  spaidctl compare A.mtx             which engine and method suit this matrix?\n"
      "  spaidctl report A.mtx -o A.html    the same as a page for others\n"
      "  spaidctl solve --help              each command explains itself\n"
      "Exit codes: 0 done, 1 error, 2 wrong usage, 3 a solve that did not converge.");
  AddGlobals(*app, args.global);
  AddSolve(*app, args);
  AddBuild(*app, args);
  AddEstimateAndUpload(*app, args);
  AddLists(*app, args);
  AddJobControl(*app, args);
  AddCompare(*app, args);
  AddReport(*app, args);
  AddLocal(*app, args);
  return app;
}

std::optional<ExitCode> Parse(CLI::App& app, int argc, const char* const* argv) {
  try {  // CLI11 speaks in exceptions, for --help too
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error, std::cout, std::cerr);
      return ExitCode::kOk;
    }
    std::string command = "spaidctl";
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    const std::span words(argv, static_cast<size_t>(argc));
    for (const std::string_view word : words) {
      if (word != "--json") continue;
      const nlohmann::json object = {
          {"error", {{"code", "USAGE"}, {"reason", "WRONG_USAGE"}, {"message", error.what()}}}};
      std::cout << object.dump(-1, ' ', /*ensure_ascii=*/true,
                               nlohmann::json::error_handler_t::replace)
                << "\n";
      break;
    }
    std::cerr << "spaidctl: " << error.what() << "\nTry `" << command << " --help`.\n";
    return ExitCode::kUsage;
  }
  return std::nullopt;
}

}  // namespace spaid::cli
