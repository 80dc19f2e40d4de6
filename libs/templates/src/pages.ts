import { fileURLToPath } from 'node:url';
import type { Config, Ids, Logger } from '@rookery/platform';
import { harmless } from './harmless-values.js';
import { readTemplates, TemplateError, TemplateSet } from './template-set.js';

/** The templates that come with the server; the same place seen from `src` and from `dist`. */
const ownFolder = fileURLToPath(new URL('../templates', import.meta.url));

/** A rendered page, ready for `HttpReply.page`. */
export interface RenderedPage {
  readonly html: string;
  /** Scripts of the page carry it; `undefined` when there are none. */
  readonly nonce: string | undefined;
  /** The operator wrote the page: scripts and images are his business. */
  readonly custom: boolean;
}

/** Where pages come from and what they know. */
export interface PagesOptions {
  readonly serverName: string;
  /** What the service is called in mails. */
  readonly appName: string;
  /** With a slash at its end. */
  readonly publicBaseUrl: string;
  /** First path segment of the protocol; `_matrix` unless told. */
  readonly protocolPrefix?: string | undefined;
  /** Folders whose files replace ours, the first one wins; a file that is missing there is ours. */
  readonly folders: readonly string[];
  /** IANA name for dates; the process's own when absent. */
  readonly timeZone?: string | undefined;
}

/** The options that the settings decide. */
export function pagesOptionsOf(config: Config): PagesOptions {
  const base = config.get('public_baseurl') ?? `https://${config.serverName}/`;
  const folders = [
    config.get('templates.custom_template_directory'),
    config.get('email.template_dir'),
    config.get('sso.template_dir'),
    config.get('account_validity.template_dir'),
    // `en/<version>.html` and `en/success.html`
    config.get('user_consent.template_dir'),
  ];
  return {
    serverName: config.serverName,
    appName: config.get('email.app_name'),
    publicBaseUrl: base.endsWith('/') ? base : `${base}/`,
    protocolPrefix: config.get('protocol_prefix'),
    folders: [...new Set(folders)].filter((folder) => folder !== undefined),
  };
}

/** The system's word for a folder that cannot be read, in one line. */
function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  switch (code) {
    case 'ENOENT':
      return 'there is no such folder';
    case 'ENOTDIR':
      return 'it is no folder';
    case 'EACCES':
      return 'permission denied';
    default:
      return message.split('\n', 1)[0] ?? '';
  }
}

function readFolder(folder: string): ReadonlyMap<string, string> {
  try {
    return readTemplates(folder);
  } catch (error) {
    if (error instanceof TemplateError) throw error;
    throw new TemplateError(`Cannot read templates in ${folder}: ${reasonOf(error)}`);
  }
}

function valuesOf(name: string, given: Readonly<Record<string, unknown>>): Record<string, unknown> {
  try {
    return harmless(given);
  } catch (error) {
    throw new TemplateError(`${name}: ${(error as Error).message}`);
  }
}

/** HTML pages and texts from templates, the operator's before ours. */
export class Pages {
  readonly #own: TemplateSet;
  readonly #all: TemplateSet;
  readonly #custom: ReadonlySet<string>;

  /**
   * Reads every template.
   * @throws TemplateError when a folder cannot be read or one of the operator's templates is wrong
   */
  constructor(
    options: PagesOptions,
    private readonly ids: Ids,
    private readonly logger: Logger,
  ) {
    const globals = { server_name: options.serverName, app_name: options.appName };
    const own = readTemplates(ownFolder);
    const custom = new Map<string, string>();
    const folderOf = new Map<string, string>();
    for (const folder of options.folders) {
      for (const [name, source] of readFolder(folder)) {
        if (custom.has(name)) continue;
        custom.set(name, source);
        folderOf.set(name, folder);
      }
    }
    this.#own = new TemplateSet(own, globals, options);
    this.#all = custom.size === 0 ? this.#own : new TemplateSet(new Map([...own, ...custom]), globals, options);
    // Ours are sound; those of the operator are read before anybody asks for one.
    try {
      if (custom.size > 0) this.#all.check();
    } catch (error) {
      const folder = error instanceof TemplateError && folderOf.get(error.template ?? '');
      throw folder ? new TemplateError(`${folder}: ${(error as Error).message}`) : error;
    }
    this.#custom = new Set(custom.keys());
  }

  /** Whether there is a template of that name. */
  has(name: string): boolean {
    return this.#all.has(name);
  }

  /**
   * A text: a mail's part, a plain page. Values are escaped where the name ends in .html, .htm or .xml, except
   * `message.body_text_html`, which must have been sanitised. Names and the like come in one line, without controls of
   * direction.
   * @throws TemplateError when there is no such template, or it fails and is not one of the operator's with a sound one of
   *   ours behind it
   */
  text(name: string, values: Readonly<Record<string, unknown>> = {}): string {
    return this.#render(name, values).text;
  }

  /** A page. @throws TemplateError as {@link text} */
  page(name: string, values: Readonly<Record<string, unknown>> = {}): RenderedPage {
    const nonce = this.ids.bytes(16).toString('base64url');
    const { text, custom } = this.#render(name, { ...values, csp_nonce: nonce });
    return { html: text, nonce: text.includes(nonce) ? nonce : undefined, custom };
  }

  #render(name: string, given: Readonly<Record<string, unknown>>): { text: string; custom: boolean } {
    const custom = this.#custom.has(name);
    const values = valuesOf(name, given);
    try {
      return { text: this.#all.render(name, values), custom };
    } catch (err) {
      if (this.#all === this.#own || !this.#own.has(name)) throw err;
      this.logger.error('A custom template failed; the built-in one stands in', { err, template: name });
      return { text: this.#own.render(name, values), custom: false };
    }
  }
}
