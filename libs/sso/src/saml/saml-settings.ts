import { readFile } from 'node:fs/promises';
import { isAbsolute, resolve } from 'node:path';
import { type Config, settingError } from '@rookery/platform';
import { parse } from 'yaml';
import { isLoopback } from '../common/client-addresses.js';

/** The parts of a service provider's set-up that have a meaning here; the names are those of the field's library. */
export interface SamlSettings {
  readonly entityId: string | undefined;
  /** Metadata of identity providers: documents, and addresses of some. */
  readonly metadata: readonly string[];
  readonly metadataUrls: readonly string[];
  /** PEM; signs requests, and opens what is encrypted unless {@link decryptionKey} is there. */
  readonly key: string | undefined;
  readonly certificate: string | undefined;
  readonly decryptionKey: string | undefined;
  readonly decryptionCertificate: string | undefined;
  readonly signsRequests: boolean;
  readonly wantsSignedResponse: boolean;
  readonly wantsSignedAssertion: boolean;
  readonly allowsUnsolicited: boolean;
  readonly forcesLogin: boolean;
  readonly nameIdFormat: string | null;
  readonly authnContext: readonly string[];
  readonly clockSkewMs: number;
}

type Section = Readonly<Record<string, unknown>>;

const maxFileBytes = 10 * 1_048_576;
const usualSkewSeconds = 60;

/**
 * Reads `saml2_config.sp_config`, or the file that `saml2_config.config_path` names.
 * @throws SettingsError with file and line
 */
export async function readSamlSettings(config: Config): Promise<SamlSettings> {
  const reader = new Reader(config);
  const { section } = reader;
  const root = await reader.root();
  const sp = section(section(root, 'service'), 'sp', ['service']);
  const sources = section(root, 'metadata');
  const flag = (name: string, usual: boolean): boolean => reader.flag(sp, name, usual, ['service', 'sp']);
  const pair = Array.isArray(root['encryption_keypairs']) ? (root['encryption_keypairs'][0] as Section) : {};
  const context = sp['requested_authn_context'];
  const either = flag('want_assertions_or_response_signed', false);
  return {
    entityId: reader.text(root, 'entityid'),
    metadata: [
      ...(await Promise.all(
        reader.texts(sources, 'local', ['metadata']).map((file, i) => reader.file(file, ['metadata', 'local', i])),
      )),
      ...reader.texts(sources, 'inline', ['metadata']),
    ],
    metadataUrls: reader.urls(sources['remote'], ['metadata', 'remote']),
    key: await reader.fileOf(root, 'key_file'),
    certificate: await reader.fileOf(root, 'cert_file'),
    decryptionKey: await reader.fileOf(pair ?? {}, 'key_file', ['encryption_keypairs', 0]),
    decryptionCertificate: await reader.fileOf(pair ?? {}, 'cert_file', ['encryption_keypairs', 0]),
    signsRequests: flag('authn_requests_signed', false),
    wantsSignedResponse: flag('want_response_signed', !either),
    wantsSignedAssertion: flag('want_assertions_signed', false),
    allowsUnsolicited: flag('allow_unsolicited', false),
    forcesLogin: flag('force_authn', false),
    nameIdFormat: reader.texts(sp, 'name_id_format', ['service', 'sp'])[0] ?? null,
    authnContext:
      typeof context === 'object' && context !== null
        ? reader.texts(context as Section, 'authn_context_class_ref', ['service', 'sp', 'requested_authn_context'])
        : [],
    clockSkewMs: reader.number(root, 'accepted_time_diff', usualSkewSeconds) * 1000,
  };
}

/** Reads values and says where they stand when they are wrong. */
class Reader {
  readonly #inline: boolean;

  constructor(private readonly config: Config) {
    this.#inline = config.get('saml2_config.sp_config') !== undefined;
  }

  async root(): Promise<Section> {
    const inline = this.config.get('saml2_config.sp_config');
    if (inline !== undefined) return inline;
    const path = this.config.get('saml2_config.config_path') ?? '';
    const text = await this.file(path, []);
    if (/^\s*(CONFIG\s*=|import |from )/m.test(text))
      this.wrong([], 'this is a program; write the same as YAML or JSON, or into sp_config');
    let parsed: unknown;
    try {
      parsed = parse(text);
    } catch (error) {
      this.wrong([], `${path} is no YAML: ${(error as Error).message.split('\n', 1)[0]}`);
    }
    if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed))
      this.wrong([], `${path} holds no section`);
    return parsed as Section;
  }

  readonly section = (from: Section, name: string, path: readonly string[] = []): Section => {
    const value = from[name] ?? {};
    if (typeof value !== 'object' || Array.isArray(value)) this.wrong([...path, name], 'expected a section');
    return value as Section;
  };

  text(from: Section, name: string, path: readonly (string | number)[] = []): string | undefined {
    const value = from[name] ?? undefined;
    if (value !== undefined && (typeof value !== 'string' || value === ''))
      this.wrong([...path, name], 'expected a text');
    return value as string | undefined;
  }

  texts(from: Section, name: string, path: readonly string[] = []): string[] {
    const value = from[name] ?? [];
    const list = (Array.isArray(value) ? value : [value]) as unknown[];
    if (!list.every((one) => typeof one === 'string' && one !== ''))
      this.wrong([...path, name], 'expected a list of texts');
    return list as string[];
  }

  urls(value: unknown, path: readonly string[]): string[] {
    const list = (value === undefined || value === null ? [] : Array.isArray(value) ? value : [value]) as unknown[];
    return list.map((one, index) => {
      const url = typeof one === 'string' ? one : (one as Section | null)?.['url'];
      // Whoever changes the metadata on their way can sign for everybody.
      if (typeof url !== 'string' || !URL.canParse(url) || !(url.startsWith('https:') || isLoopback(url)))
        return this.wrong([...path, index], 'expected an https address as url; without TLS on this machine only');
      return url;
    });
  }

  flag(from: Section, name: string, usual: boolean, path: readonly string[]): boolean {
    const value = from[name] ?? usual;
    if (typeof value !== 'boolean') this.wrong([...path, name], 'expected true or false');
    return value as boolean;
  }

  number(from: Section, name: string, usual: number): number {
    const value = from[name] ?? usual;
    if (typeof value !== 'number' || !(value >= 0 && value <= 86_400))
      this.wrong([name], 'expected seconds, at most a day');
    return value as number;
  }

  async fileOf(from: Section, name: string, path: readonly (string | number)[] = []): Promise<string | undefined> {
    const file = this.text(from, name, path);
    return file === undefined ? undefined : this.file(file, [...path, name]);
  }

  async file(file: string, path: readonly (string | number)[]): Promise<string> {
    try {
      const bytes = await readFile(isAbsolute(file) ? file : resolve(this.config.configDir, file));
      if (bytes.length > maxFileBytes) return this.wrong(path, `${file} is larger than ${maxFileBytes} bytes`);
      return bytes.toString('utf8');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === undefined) throw error;
      return this.wrong(path, `cannot read ${file}: ${code === 'ENOENT' ? 'there is no such file' : code}`);
    }
  }

  wrong(path: readonly (string | number)[], message: string): never {
    throw settingError(
      this.config,
      this.#inline ? 'saml2_config.sp_config' : 'saml2_config.config_path',
      this.#inline ? path : [],
      this.#inline || path.length === 0 ? message : `${path.join('.')}: ${message}`,
    );
  }
}
