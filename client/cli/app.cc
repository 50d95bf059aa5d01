#include "client/cli/app.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "client/cli/gallery.h"
#include "client/cli/options.h"

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

// What static SPAI, dynamic SPAI and FSAI share.
void AddPatterns(CLI::App* app, EngineArgs& args, bool with_power) {
  const std::string group = "Patterns of M (static-spai, dynamic-spai, fsai, afsai)";
  if (with_power) {
    app->add_option("--pattern-power", args.pattern_power,
                    "p: M (or G, lower triangular) has the pattern of (E + |A|)^p; more is "
                    "stronger and dearer; of static-spai and fsai")
        ->check(Whole(1, 16))
        ->type_name("P")
        ->capture_default_str()
        ->group(group);
  }
  app->add_option("--pattern", args.pattern,
                  "Start from this pattern instead of A's (afsai, dynamic-spai: the diagonal): "
                  "file, gallery:... or handle")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--post-filter", args.post_filter,
                  "Drop entries of M below this part of their column's largest (of G: of their "
                  "row's norm)")
      ->check(Fraction())
      ->type_name("F")
      ->capture_default_str()
      ->group(group);
  app->add_option("--step-size", args.step_size, "afsai, dynamic-spai: entries that a step adds")
      ->check(Whole(1, 32))
      ->type_name("S")
      ->default_str("1, 5")
      ->group(group);
  app->add_flag("--regrow", args.regrow,
                "afsai, dynamic-spai: grow anew, on no pattern that an earlier build with other "
                "values grew")
      ->group(group);
}

void AddDynamicSpai(CLI::App* app, EngineArgs& args) {
  const std::string group = "Dynamic SPAI";
  DynamicSpaiSpec& dynamic = args.dynamic_spai;
  app->add_option("--column-tol", dynamic.tol,
                  "A column of M grows until |A m_k - e_k| is down to this")
      ->check(
          Number("a number of at least 0 and under 1", [](double v) { return v >= 0 && v < 1; }))
      ->type_name("TOL")
      ->capture_default_str()
      ->group(group);
  app->add_option("--max-steps", dynamic.max_steps, "Steps of growth a column takes at most")
      ->check(Whole(0, 512))
      ->type_name("K")
      ->capture_default_str()
      ->group(group);
  app->add_option("--max-column-nnz", dynamic.max_column_nnz,
                  "Entries that growth takes a column to at most; 0: what the steps add")
      ->check(Whole(0, 2147483647))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  AddChoice(app, "--growth-precision", dynamic.growth_precision,
            "Arithmetic of growth; values of M are computed in fp64",
            {Precision::kFp64, Precision::kFp32})
      ->group(group);
}

void AddFsai(CLI::App* app, EngineArgs& args) {
  const std::string group = "FSAI (A symmetric positive definite)";
  FsaiSpec& fsai = args.fsai;
  const auto add_part = [&](const char* name, double& value, const char* help, const char* type) {
    app->add_option(name, value, help)
        ->check(
            Number("a number of at least 0 and under 1", [](double v) { return v >= 0 && v < 1; }))
        ->type_name(type)
        ->capture_default_str()
        ->group(group);
  };
  app->add_option("--k-max", fsai.k_max, "afsai: steps of growth a row takes at most")
      ->check(Whole(0, 512))
      ->type_name("K")
      ->capture_default_str()
      ->group(group);
  add_part("--epsilon", fsai.epsilon,
           "afsai: a row ends once psi is down to this part of its diagonal entry", "EPS");
  add_part("--min-gain", fsai.min_gain,
           "afsai: a row ends with a step that lowers psi by less than this part of it; 1e-3 to "
           "1e-2 spare most of G for few iterations",
           "GAIN");
  app->add_option("--time-budget", args.time_budget_s, "afsai: growth ends after this long")
      ->check(Positive())
      ->type_name("SECONDS")
      ->group(group);
  add_part("--drop-tol", fsai.drop_tol,
           "fsai: entries of A below this part of their diagonal entries do not count for the "
           "pattern",
           "TAU");
  AddChoice(app, "--fsai-precision", fsai.precision, "Arithmetic of the set-up",
            {Precision::kFp64, Precision::kFp32})
      ->group(group);
  add_part("--symmetry-tolerance", fsai.symmetry_tolerance,
           "By how much A may differ from its transpose, to the diagonal", "T");
}

void AddSpai(CLI::App* app, EngineArgs& args) {
  const std::string group = "Static SPAI";
  app->add_option("--keep-tau", args.keep_tau,
                  "Keep only the entries of A above (1 - tau) of their column's largest")
      ->check(Fraction())
      ->type_name("TAU")
      ->group(group);
  app->add_flag("--ensure-row", args.ensure_row,
                "Add each column's partners in A's row to its pattern")
      ->group(group);
  app->add_flag("--row-match", args.row_match,
                "Permute rows by a maximum matching first (zero diagonals)")
      ->group(group);
  AddChoice(app, "--local-solver", args.local_solver,
            "How the least-squares problems are solved: qr is the sure one, gram the quick one; "
            "of dynamic-spai, too, on the pattern that has grown",
            {LocalSolver::kAuto, LocalSolver::kQr, LocalSolver::kGram})
      ->group(group);
  AddChoice(
      app, "--thread-strategy", args.thread_strategy,
      "With --local-solver=qr on a GPU: as many threads for all columns, or by each one's length",
      {ThreadStrategy::kAuto, ThreadStrategy::kConstant, ThreadStrategy::kVariable,
       ThreadStrategy::kPaper})
      ->group(group);
}

// Those to build with; `with_none`: or to solve without.
void AddEngine(CLI::App* app, EngineArgs& args, bool with_none) {
  std::vector<Engine> engines;
  for (const EngineTraits& engine : kEngines) {
    if (with_none || engine.engine != Engine::kNone) engines.push_back(engine.engine);
  }
  AddChoice(app, "--engine", args.engine, "Preconditioner", engines);
  app->add_option("--block-size", args.block_size,
                  "Rows of the diagonal blocks that M inverts, such as the unknowns of a node")
      ->check(Whole(1, 32))
      ->type_name("B")
      ->capture_default_str()
      ->group("Jacobi");
  AddPatterns(app, args, true);
  AddSpai(app, args);
  AddDynamicSpai(app, args);
  AddFsai(app, args);
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

void AddIteration(CLI::App* app, double& rtol, int64_t& max_iterations, int64_t& restart) {
  app->add_option("--rtol", rtol, "Converged when |b - Ax| <= rtol |b|, recomputed at the end")
      ->check(Positive())
      ->type_name("R")
      ->capture_default_str();
  app->add_option("--max-iterations", max_iterations, "Give up after so many iterations")
      ->check(Whole(1, 2147483647))
      ->type_name("K")
      ->capture_default_str();
  app->add_option("--restart", restart, "m of GMRES(m)")
      ->check(Whole(1, 1000000))
      ->type_name("M")
      ->capture_default_str();
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
      "  spaidctl solve gallery:poisson3d:40 --engine=afsai --k-max=20\n"
      "  spaidctl solve gallery:convdiff:30 --engine=dynamic-spai --column-tol=0.4\n"
      "  spaidctl solve A.mtx --plot=A.svg                how the residual fell, for a report\n"
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
  AddChoice(sub, "--method", s.method, "Krylov method",
            {Method::kAuto, Method::kCg, Method::kBicgstab, Method::kGmres});
  AddIteration(sub, s.rtol, s.max_iterations, s.restart);
  AddChoice(sub, "--m-precision", s.m_precision,
            "How M, or G of FSAI, is stored while the solve runs; arithmetic is fp64",
            {Precision::kAuto, Precision::kFp64, Precision::kFp32});
  sub->add_option("--atol", s.atol, "Absolute tolerance: |b - Ax| <= atol is enough, too")
      ->check(NotNegative())
      ->type_name("R")
      ->capture_default_str();
  sub->add_option("--initial-guess", s.initial_guess, "Start from this x instead of 0")
      ->type_name("FILE");
  sub->add_option("--out", s.out, "Write the solution here (also .gz)")->type_name("FILE");
  AddPlot(sub, s.plot);
  sub->add_flag("--history", s.history, "With --json: every residual, too");
  AddEngine(sub, s.engine, /*with_none=*/true);
  sub->add_option("--preconditioner", s.preconditioner,
                  "Use this one (handle preconditioners/...) instead of building")
      ->type_name("HANDLE")
      ->excludes("--engine");
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
      "  spaidctl build gallery:circuit --row-match --local-solver=qr --json");
  AddMatrix(sub, b.matrix);
  b.engine.engine = Engine::kStaticSpai;
  AddEngine(sub, b.engine, /*with_none=*/false);
  sub->add_option("--precond-out", b.precond_out,
                  "Write M, or G of M = G'G, here as Matrix Market (also .gz)")
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
                                    "Write M, or G of M = G'G, here as Matrix Market (also .gz)")
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

void AddCompare(CLI::App& app, Arguments& args) {
  CompareArgs& c = args.compare;
  CLI::App* sub =
      AddCommand(app, args, Command::kCompare, "compare",
                 "Solve with every engine and method that fits; one table, the best total marked",
                 "  spaidctl compare A.mtx\n"
                 "  spaidctl compare gallery:convdiff:30 --powers=1 --rhs=ones\n"
                 "Exit codes: 0 at least one converged, 3 none did, 1 error, 2 wrong usage.");
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
  AddIteration(sub, c.rtol, c.max_iterations, c.restart);
  AddPlot(sub, c.plot);
  sub->add_option("--max-setup", c.max_setup_s,
                  "Leave out what the server predicts to build longer than this")
      ->check(Positive())
      ->type_name("SECONDS")
      ->capture_default_str();
  AddPatterns(sub, c.engine, false);
  AddSpai(sub, c.engine);
  AddDynamicSpai(sub, c.engine);
  AddFsai(sub, c.engine);
  AddLimits(sub, c.limits);
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
  for (const GalleryFamily& f : GalleryFamilies()) families.emplace_back(f.name);
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

std::unique_ptr<CLI::App> MakeApp(Arguments& args) {
  auto app = std::make_unique<CLI::App>(
      "spaidctl talks to spaid, the daemon that builds sparse approximate inverse preconditioners\n"
      "and solves sparse linear systems.",
      "spaidctl");
  app->fallthrough();
  app->require_subcommand(1, 1);
  app->set_version_flag("--version", "spaidctl " SPAID_VERSION);
  app->get_formatter()->column_width(34);
  app->footer(
      "Start here:\n"
      "  spaidctl info                      is the daemon there, and what can it do?\n"
      "  spaidctl solve gallery:poisson     a first solve without any file\n"
      "  spaidctl compare A.mtx             which engine and method suit this matrix?\n"
      "  spaidctl solve --help              each command explains itself\n"
      "Exit codes: 0 done, 1 error, 2 wrong usage, 3 a solve that did not converge.");
  AddGlobals(*app, args.global);
  AddSolve(*app, args);
  AddBuild(*app, args);
  AddEstimateAndUpload(*app, args);
  AddLists(*app, args);
  AddJobControl(*app, args);
  AddCompare(*app, args);
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
