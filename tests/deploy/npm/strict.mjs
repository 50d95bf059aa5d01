// Checks objects of Kubernetes, a JSON array on standard input, by the schemas of kubernetes-models:
// types, enums, required keys; and that no key is there which the schema does not know. Prints a line
// for each fault; exit 1 if there is one, or if no schema is known for an object.
//
//   node strict.mjs < objects.json
import { readFileSync } from "node:fs";

const PACKAGES = ["kubernetes-models", "@kubernetes-models/prometheus-operator", "@kubernetes-models/keda",
                  "@kubernetes-models/cert-manager"];

// Notes in `read` the path of each key that somebody looks at.
function watched(value, path, read) {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, key) {
      if (typeof key !== "string") return target[key];
      read.add(`${path}/${key}`);
      return watched(target[key], `${path}/${key}`, read);
    },
  });
}

// The schemas are compiled into functions, which look at the keys that they know.
function* unread(value, path, read) {
  if (value === null || typeof value !== "object") return;
  for (const key of Object.keys(value)) {
    const own = `${path}/${key}`;
    if (read.has(own)) yield* unread(value[key], own, read);
    else yield own;
  }
}

async function modelOf({ apiVersion, kind }) {
  for (const name of PACKAGES) {
    try {
      const model = (await import(`${name}/${apiVersion}/${kind}`))[kind];
      if (model) return model;
    } catch (error) {
      if (!["ERR_MODULE_NOT_FOUND", "ERR_PACKAGE_PATH_NOT_EXPORTED"].includes(error.code)) throw error;
    }
  }
  return null;
}

let faults = 0;
const fault = (object, text) => {
  ++faults;
  console.log(`${object.kind} ${object.metadata?.name}: ${text}`);
};
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const Model = await modelOf(object);
  if (Model === null) {
    fault(object, `no schema of ${object.apiVersion}`);
    continue;
  }
  const read = new Set();
  try {
    watched(Object.assign(Object.create(Model.prototype), object), "", read).validate();
  } catch (error) {
    fault(object, error.message);
  }
  for (const path of unread(object, "", read)) fault(object, `no schema knows ${path}`);
}
process.exit(faults > 0 ? 1 : 0);
