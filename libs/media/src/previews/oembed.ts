import { readFileSync } from 'node:fs';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { addressOf, readPage, summaryOf, tidy } from './page-facts.js';

interface Provider {
  readonly scheme: RegExp;
  /** Where descriptions are asked for. */
  readonly endpoint: string;
}

/** Sites whose pages say little to those who do not run their scripts, but which describe them for embedding. */
const known: readonly { readonly endpoint: string; readonly schemes: readonly string[] }[] = [
  {
    endpoint: 'https://publish.twitter.com/oembed',
    schemes: ['twitter.com/*/status/*', '*.twitter.com/*/status/*', 'x.com/*/status/*', '*.x.com/*/status/*'].flatMap(
      (rest) => [`https://${rest}`, `http://${rest}`],
    ),
  },
  {
    endpoint: 'https://www.youtube.com/oembed',
    schemes: [
      'https://*.youtube.com/watch*',
      'https://*.youtube.com/shorts/*',
      'https://youtu.be/*',
      'https://*.youtube.com/playlist?list=*',
    ],
  },
  { endpoint: 'https://www.tiktok.com/oembed', schemes: ['https://www.tiktok.com/*/video/*'] },
  {
    endpoint: 'https://vimeo.com/api/oembed.json',
    schemes: ['https://vimeo.com/*', 'https://player.vimeo.com/video/*'],
  },
];

/** `https://*.example.com/x/*`: in the host a star stands for parts of names, behind it for anything. */
function schemeOf(scheme: string): RegExp {
  const match = /^(https?):\/\/([^/]+)(\/.*)?$/.exec(scheme);
  if (match === null) throw new Error(`'${scheme}' is no scheme of addresses`);
  const [, protocol = '', host = '', path = '/'] = match;
  const escaped = (text: string, star: string): string =>
    text
      .split(/\*+/)
      .map((part) => part.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'))
      .join(star);
  return new RegExp(`^${protocol}:\\/\\/${escaped(host, '[\\w.-]*')}${escaped(path, '.*')}$`);
}

/** @throws Error when a file cannot be read, or is no list of providers */
function providersIn(file: string): Provider[] {
  const list = JSON.parse(readFileSync(file, 'utf8')) as unknown;
  if (!Array.isArray(list)) throw new Error('expected a list of providers');
  return list.flatMap((provider: unknown) => {
    const endpoints: unknown = isJsonObject(provider) ? provider['endpoints'] : undefined;
    if (!Array.isArray(endpoints)) throw new Error('a provider needs endpoints');
    return endpoints.flatMap((endpoint: unknown) => {
      if (!isJsonObject(endpoint) || typeof endpoint['url'] !== 'string') throw new Error('an endpoint needs a url');
      const { url, schemes = [] } = endpoint;
      if (!Array.isArray(schemes)) throw new Error('schemes is not a list');
      return schemes.map((scheme) => ({
        scheme: schemeOf(String(scheme)),
        endpoint: url.replaceAll('{format}', 'json'),
      }));
    });
  });
}

/** What an oEmbed description gives for a preview. */
export interface Embedding {
  /** OpenGraph properties; `og:image` is an address. */
  readonly og: JsonObject;
  readonly maxAgeMs: number | undefined;
}

/** Knows which sites describe their pages for embedding, and reads these descriptions (oEmbed). */
export class Embeddings {
  readonly #providers: readonly Provider[];

  /**
   * @param files JSON files with more providers
   * @throws Error naming the file that cannot be used
   */
  constructor(useKnown: boolean, files: readonly string[]) {
    const own = known.flatMap(({ endpoint, schemes }) =>
      schemes.map((scheme) => ({ scheme: schemeOf(scheme), endpoint })),
    );
    const more = files.flatMap((file) => {
      try {
        return providersIn(file);
      } catch (error) {
        throw new Error(`${file}: ${error instanceof Error ? error.message : String(error)}`);
      }
    });
    this.#providers = [...(useKnown ? own : []), ...more];
  }

  /** Where a page is described; `undefined` when its site is not known for that. */
  addressFor(url: string): string | undefined {
    const provider = this.#providers.find(({ scheme }) => scheme.test(url));
    if (provider === undefined) return undefined;
    const address = URL.parse(provider.endpoint);
    if (address === null) return undefined;
    address.searchParams.set('url', url);
    address.searchParams.set('format', 'json');
    return address.href;
  }

  /** Reads a description; `undefined` when it is none. */
  async read(answer: unknown, url: string): Promise<Embedding | undefined> {
    if (!isJsonObject(answer) || !/^1(?:\.0)?$/.test(textOf(answer['version']) ?? '')) return undefined;
    const og: Record<string, string | number> = { 'og:url': url };
    const set = (name: string, value: string | undefined): void => {
      if (value !== undefined) og[name] = value;
    };
    set('og:title', textOf(answer['title']) ?? textOf(answer['author_name']));
    set('og:site_name', textOf(answer['provider_name']));
    const thumbnail = urlOf(answer['thumbnail_url']);
    set('og:image', thumbnail);
    const type = answer['type'];
    const html = typeof answer['html'] === 'string' ? answer['html'] : '';
    if (type === 'photo') set('og:image', urlOf(answer['url']) ?? thumbnail);
    else if (type === 'video') og['og:type'] = 'video.other';
    else if (type === 'rich')
      set('og:description', summaryOf((await readPage(Buffer.from(html), 'text/html; charset=utf-8')).text));
    const age = Number(answer['cache_age']);
    return { og, maxAgeMs: Number.isFinite(age) && age > 0 ? age * 1_000 : undefined };
  }
}

const urlOf = (value: unknown): string | undefined => (typeof value === 'string' ? addressOf(value) : undefined);

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' ? tidy(value) : typeof value === 'number' ? String(value) : undefined;
