#include "client/cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

// Describes an option or positional to a shell.
struct Word {
  std::vector<std::string> names;    // "--engine", "-q"; empty: positional
  std::vector<std::string> choices;  // allowed values
  std::string help;
  std::string value_name;
  bool takes_value = false;
  bool is_file = false;
  bool is_matrix = false;  // a file or gallery:...
};

struct CommandWords {
  std::string name, help;
  std::vector<Word> words;
};

std::string Join(const std::vector<std::string>& parts, const char* separator = " ") {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

std::vector<Word> WordsOf(const CLI::App& app) {
  std::vector<Word> words;
  for (const CLI::Option* option : app.get_options()) {
    Word word;
    for (const std::string& name : option->get_lnames()) word.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) word.names.push_back("-" + name);
    word.help = option->get_description();
    word.takes_value = option->get_items_expected_max() > 0;
    // "TEXT:{a,b}": the type's name, then each validator's words.
    const std::string type = option->get_type_name();
    word.value_name = type.substr(0, type.find(':'));
    const size_t open = type.find('{'), close = type.rfind('}');
    if (open != std::string::npos && close != std::string::npos && open < close) {
      for (size_t at = open + 1; at < close;) {
        const size_t end = std::min(type.find(',', at), close);
        word.choices.push_back(type.substr(at, end - at));
        at = end + 1;
      }
    }
    word.is_matrix = word.names.empty() && word.value_name == "A";
    word.is_file = word.is_matrix || word.value_name.starts_with("FILE");
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<CommandWords> CommandsOf(const CLI::App& app) {
  std::vector<CommandWords> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back({sub->get_name(), sub->get_description(), WordsOf(*sub)});
  }
  return commands;
}

std::vector<std::string> GalleryNames() {
  std::vector<std::string> names;
  for (const gallery::Family& family : gallery::Families()) names.emplace_back(family.name);
  return names;
}

std::vector<std::string> OptionNames(const std::vector<Word>& words) {
  std::vector<std::string> names;
  for (const Word& word : words) names.insert(names.end(), word.names.begin(), word.names.end());
  return names;
}

// --- bash ---

// `any`: the option stands in every command.
std::string BashValues(const std::string& command, const std::vector<Word>& words, bool any) {
  std::string text;
  for (const Word& word : words) {
    if (word.names.empty() || !word.takes_value) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : word.names) {
      patterns.push_back(any ? "*\" " + name + "\"" : "\"" + command + " " + name + "\"");
    }
    text += "    " + Join(patterns, "|") + ") ";
    if (!word.choices.empty()) {
      text += "COMPREPLY=($(compgen -W \"" + Join(word.choices) + "\" -- \"$cur\"))";
    } else if (word.is_file) {
      text += "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\"))";
    } else {
      text += "COMPREPLY=()";
    }
    text += "; return ;;\n";
  }
  return text;
}

std::string Bash(const std::vector<Word>& globals, const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) names.push_back(command.name);
  std::string text =
      "# bash completion for spaidctl; made by `spaidctl completion bash`\n"
      "_spaidctl() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local command=\"\" word\n"
      "  # bash splits words at = and :\n"
      "  if [[ $cur == \"=\" || $cur == \":\" ]]; then\n"
      "    [[ $cur == \":\" ]] && prev=\":\"\n"
      "    cur=\"\"\n"
      "  elif [[ $prev == \"=\" ]]; then\n"
      "    prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n"
      "  fi\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$word\" in\n"
      "      " +
      Join(names, "|") +
      ") command=\"$word\"; break ;;\n"
      "    esac\n"
      "  done\n"
      "  if [[ $prev == \":\" ]]; then\n"
      "    COMPREPLY=($(compgen -W \"" +
      Join(GalleryNames()) +
      "\" -- \"$cur\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"$command $prev\" in\n";
  for (const CommandWords& command : commands) {
    text += BashValues(command.name, command.words, false);
  }
  text += BashValues("", globals, true);
  text +=
      "  esac\n"
      "  local options=\"" +
      Join(OptionNames(globals)) +
      "\"\n"
      "  case \"$command\" in\n"
      "    \"\") [[ $cur == -* ]] || options=\"" +
      Join(names) + "\" ;;\n";
  for (const CommandWords& command : commands) {
    text += "    " + command.name + ")\n      if [[ $cur == -* ]]; then\n        options+=\" " +
            Join(OptionNames(command.words)) + "\"\n      else\n        options=\"\"\n";
    for (const Word& word : command.words) {
      if (!word.names.empty()) continue;
      if (!word.choices.empty()) text += "        options+=\" " + Join(word.choices) + "\"\n";
      if (word.is_matrix) {
        text +=
            "        compopt -o filenames -o nospace\n"
            "        COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -W \"gallery:\" -- \"$cur\"))\n"
            "        return\n";
      }
    }
    text += "      fi ;;\n";
  }
  text +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
      "}\n"
      "complete -F _spaidctl spaidctl\n";
  return text;
}

// --- zsh ---

// For the inside of single quotes in a specification of _arguments or _describe.
std::string ZshEscape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      escaped += std::string("\\") + c;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string ZshAction(const Word& word) {
  if (!word.choices.empty()) return "(" + Join(word.choices) + ")";
  if (word.is_matrix) {
    std::vector<std::string> names;
    for (const std::string& name : GalleryNames()) names.push_back("gallery\\:" + name);
    return "_alternative \"files\\:file\\:_files\" \"gallery\\:gallery\\:(" + Join(names) + ")\"";
  }
  return word.is_file ? "_files" : "";
}

std::string ZshSpecs(const std::vector<Word>& words, const std::string& indent) {
  std::string text;
  for (const Word& word : words) {
    if (word.names.empty()) {
      text += indent + "'1:" + ZshEscape(word.value_name) + ":" + ZshAction(word) + "'\n";
    }
    for (const std::string& name : word.names) {
      const bool is_long = name.starts_with("--");
      text += indent + "'" + name + (word.takes_value && is_long ? "=" : "") + "[" +
              ZshEscape(word.help) + "]";
      if (word.takes_value) text += ":" + ZshEscape(word.value_name) + ":" + ZshAction(word);
      text += "'\n";
    }
  }
  return text;
}

std::string Zsh(const std::vector<Word>& globals, const std::vector<CommandWords>& commands) {
  std::string text =
      "#compdef spaidctl\n"
      "# zsh completion for spaidctl; made by `spaidctl completion zsh`\n"
      "_spaidctl() {\n"
      "  local curcontext=\"$curcontext\" state line\n"
      "  local -a commands globals\n"
      "  commands=(\n";
  for (const CommandWords& command : commands) {
    text += "    '" + command.name + ":" + ZshEscape(command.help) + "'\n";
  }
  text += "  )\n  globals=(\n" + ZshSpecs(globals, "    ") +
          "  )\n"
          "  _arguments -C $globals '1:command:->command' '*::argument:->argument'\n"
          "  case $state in\n"
          "    command) _describe command commands ;;\n"
          "    argument)\n"
          "      local -a specs\n"
          "      specs=()\n"
          "      case $words[1] in\n";
  for (const CommandWords& command : commands) {
    text += "        " + command.name + ") specs=(\n" + ZshSpecs(command.words, "          ") +
            "        ) ;;\n";
  }
  text +=
      "      esac\n"
      "      _arguments $globals $specs\n"
      "      ;;\n"
      "  esac\n"
      "}\n"
      "compdef _spaidctl spaidctl\n";
  return text;
}

// --- fish ---

std::string FishQuote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string FishLines(const std::string& condition, const std::vector<Word>& words) {
  const std::string start =
      "complete -c spaidctl" + (condition.empty() ? "" : " -n " + FishQuote(condition));
  std::string text;
  for (const Word& word : words) {
    std::vector<std::string> values = word.choices;
    if (word.is_matrix) {
      for (const std::string& name : GalleryNames()) values.push_back("gallery:" + name);
    }
    std::string value;
    if (word.is_file) {
      value += " -F";
    }
    if (word.takes_value && !word.names.empty()) value += word.is_file ? " -r" : " -x";
    if (!values.empty()) value += " -a " + FishQuote(Join(values));
    if (word.names.empty()) {
      if (!value.empty()) text += start + value + "\n";
      continue;
    }
    std::string line = start;
    for (const std::string& name : word.names) {
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    text += line + value + " -d " + FishQuote(word.help) + "\n";
  }
  return text;
}

std::string Fish(const std::vector<Word>& globals, const std::vector<CommandWords>& commands) {
  std::string text =
      "# fish completion for spaidctl; made by `spaidctl completion fish`\n"
      "complete -c spaidctl -f\n";
  for (const CommandWords& command : commands) {
    text += "complete -c spaidctl -n __fish_use_subcommand -a " + command.name + " -d " +
            FishQuote(command.help) + "\n";
  }
  text += FishLines("", globals);
  for (const CommandWords& command : commands) {
    text += FishLines("__fish_seen_subcommand_from " + command.name, command.words);
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, std::string_view shell) {
  const std::vector<Word> globals = WordsOf(app);
  const std::vector<CommandWords> commands = CommandsOf(app);
  if (shell == "zsh") return Zsh(globals, commands);
  if (shell == "fish") return Fish(globals, commands);
  return Bash(globals, commands);
}

}  // namespace spaid::cli
