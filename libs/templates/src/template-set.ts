import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { createRequire } from 'node:module';
import type { Environment } from 'minijinja-js';
import { type FilterContext, filters } from './filters.js';
import { translate } from './jinja-dialect.js';

const require = createRequire(import.meta.url);
/** Loaded with the first template: the engine is large, and many servers never show a page. */
const openEngine = (): Environment => {
  // In one expression with `new`, the compiler drops the parentheses that it needs.
  const library = require('minijinja-js') as typeof import('minijinja-js');
  return new library.Environment();
};

/** A template is wrong: its syntax at load, its use of variables when rendered. The message is one line. */
export class TemplateError extends Error {
  /** @param template its name, where it is one that could not be read */
  constructor(
    message: string,
    readonly template?: string,
  ) {
    super(message);
    this.name = 'TemplateError';
  }
}

/** Work one rendering may do; ordinary pages need some hundreds. */
const fuel = 5_000_000;
const maxFiles = 1000;
const maxFileBytes = 1_048_576;
const suffixes = /\.(?:html?|xml|txt|css|js)$/i;

/** Names whose values are escaped. */
const escaped = /\.(?:html?|xml)$/i;
/** Those of them that the engine knows. */
const engineEscapes = /\.(?:html?|xml)$/;

const firstLine = (error: unknown): string => String(error instanceof Error ? error.message : error).split('\n', 1)[0]!;

/** What the engine takes for scripts and data, whose values it would put in quotes. */
const quoted = /\.(?:json5?|js|ya?ml)$/;

/** A source in the engine's words, escaped or not as its name says: of the engine's own rules only these names need it. */
function sourceFor(name: string, source: string): string {
  const translated = translate(source);
  if (escaped.test(name) && !engineEscapes.test(name)) return `{% autoescape "html" %}${translated}{% endautoescape %}`;
  return quoted.test(name) ? `{% autoescape false %}${translated}{% endautoescape %}` : translated;
}

/** The templates in a folder and its subfolders, by their path with slashes. */
export function readTemplates(folder: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!suffixes.test(entry.name) || !statSync(path).isFile()) continue;
    if (found.size >= maxFiles) throw new TemplateError(`${folder} holds more than ${maxFiles} templates`);
    if (statSync(path).size > maxFileBytes) throw new TemplateError(`${path} is larger than ${maxFileBytes} bytes`);
    found.set(relative(folder, path).split(sep).join('/'), readFileSync(path, 'utf8'));
  }
  return found;
}

/** Templates that know each other, and the engine they are loaded in. Names that end in .html, .htm or .xml are escaped. */
export class TemplateSet {
  #engine: Environment | undefined;

  /** @param sources by name */
  constructor(
    private readonly sources: ReadonlyMap<string, string>,
    private readonly globals: Readonly<Record<string, unknown>>,
    private readonly context: FilterContext,
  ) {}

  /** Reads every template. @throws TemplateError naming the template and line of a syntax error */
  check(): void {
    this.#engine ??= this.#load();
  }

  has(name: string): boolean {
    return this.sources.has(name);
  }

  /** @throws TemplateError */
  render(name: string, values: Readonly<Record<string, unknown>>): string {
    const engine = (this.#engine ??= this.#load());
    try {
      const result = engine.renderTemplate(name, { ...this.globals, ...values });
      // The engine escapes slashes, which need it nowhere and make links unreadable.
      return escaped.test(name) ? result.replaceAll('&#x2f;', '/') : result;
    } catch (error) {
      // The engine may be beyond use after any failure.
      this.#engine = undefined;
      throw new TemplateError(`${name}: ${firstLine(error)}`);
    }
  }

  #load(): Environment {
    const engine = openEngine();
    engine.enablePyCompat();
    engine.fuel = fuel;
    for (const [name, filter] of Object.entries(filters(this.context))) engine.addFilter(name, filter);
    for (const [name, source] of this.sources) {
      try {
        engine.addTemplate(name, sourceFor(name, source));
      } catch (error) {
        throw new TemplateError(firstLine(error), name);
      }
    }
    return engine;
  }
}

/**
 * A template given as a setting, without escaping: mapping of attributes to names. `localpart_from_email` and the other
 * filters are there.
 * @throws TemplateError at once when the syntax is wrong; the result throws it when a value cannot be rendered
 */
export function compileText(source: string): (values: Readonly<Record<string, unknown>>) => string {
  const set = new TemplateSet(new Map([['setting', source]]), {}, { publicBaseUrl: '/' });
  set.check();
  return (values) => set.render('setting', values);
}
