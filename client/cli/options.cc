#include "client/cli/options.h"

#include <cmath>
#include <limits>

namespace spaid::cli {

CLI::Validator Number(const std::string& range, std::function<bool(double)> good) {
  return CLI::Validator(
      [range, good = std::move(good)](std::string& text) -> std::string {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value) || !std::isfinite(value) || !good(value)) {
          return "must be " + range + ", not " + text;
        }
        return "";
      },
      "");
}

CLI::Validator Whole(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        int64_t value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
        const bool bounded = high < std::numeric_limits<int64_t>::max();
        return "must be a whole number " +
               (bounded ? "from " + std::to_string(low) + " to " + std::to_string(high)
                        : "of at least " + std::to_string(low)) +
               ", not " + text;
      },
      "");
}

CLI::Validator ReadableFile() { return CLI::Validator(CLI::ExistingFile).description(""); }

CLI::Validator Within(double min, bool above_min, double max, bool below_max) {
  const std::string low = CLI::detail::to_string(min), high = CLI::detail::to_string(max);
  std::string range = "a number " + (above_min ? "above " + low : "of at least " + low);
  if (below_max) {
    range += " and under " + high;
  } else if (std::isfinite(max)) {
    range = "a number from " + low + " to " + high;
  }
  return Number(range, [=](double v) {
    return (above_min ? v > min : v >= min) && (below_max ? v < max : v <= max);
  });
}
CLI::Validator Positive() {
  return Within(0, true, std::numeric_limits<double>::infinity(), false);
}
CLI::Validator NotNegative() {
  return Within(0, false, std::numeric_limits<double>::infinity(), false);
}
CLI::Validator Fraction() { return Within(0, false, 1, false); }

void AddServer(CLI::App& app, ClientOptions& client) {
  const std::string group = "Server";
  app.add_option("--address", client.address,
                 "Daemon to talk to; several, with commas between, are replicas")
      ->envname("SPAID_ADDRESS")
      ->type_name("HOST:PORT")
      ->capture_default_str()
      ->group(group);
  app.add_option("--tls-ca", client.ca_file, "Use TLS; trust this authority (PEM)")
      ->check(ReadableFile())
      ->type_name("FILE")
      ->group(group);
  auto* certificate = app.add_option("--tls-cert", client.certificate_file,
                                     "Client certificate for mutual TLS (PEM)")
                          ->check(ReadableFile())
                          ->type_name("FILE")
                          ->group(group);
  auto* key = app.add_option("--tls-key", client.key_file, "Its private key (PEM)")
                  ->check(ReadableFile())
                  ->type_name("FILE")
                  ->group(group);
  certificate->needs(key);
  key->needs(certificate);
  app.add_option("--token", client.token,
                 "Bearer token; better in the environment, where others do not see it")
      ->envname("SPAID_TOKEN")
      ->type_name("TOKEN")
      ->group(group);
  app.add_option("--admin-token", client.admin_token,
                 "The same of an administrator: sent by info, jobs --all-tenants, jobs JOB and "
                 "cancel in place of --token")
      ->envname("SPAID_ADMIN_TOKEN")
      ->type_name("TOKEN")
      ->group(group);
  app.add_option("--tenant", client.tenant,
                 "Tenant to ask for (a daemon believes it only with --trust-tenant-header)")
      ->type_name("NAME")
      ->group(group);
}

void AddLooks(CLI::App& app, GlobalArgs& args) {
  const std::string group = "Output";
  app.add_flag("-q,--quiet", args.quiet, "No progress")->group(group);
  app.add_option_function<std::string>(
         "--color",
         [&args](const std::string& when) {
           args.color = when == "always"  ? Color::kAlways
                        : when == "never" ? Color::kNever
                                          : Color::kAuto;
         },
         "Colours: auto looks at the terminal and NO_COLOR")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->default_str("auto")
      ->group(group);
}

}  // namespace spaid::cli
