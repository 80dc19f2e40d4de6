import { setImmediate as turn } from 'node:timers/promises';
import type { Parser } from 'htmlparser2';
import { longestUrl } from './url-rules.js';

/** What a page says about itself. Addresses are as written. */
export interface PageFacts {
  /** OpenGraph properties without their prefix: `title`, `image:width`. Of a repeated one the first counts. */
  readonly openGraph: ReadonlyMap<string, string>;
  /** Twitter's properties, likewise. */
  readonly twitter: ReadonlyMap<string, string>;
  readonly title: string | undefined;
  readonly heading: string | undefined;
  readonly description: string | undefined;
  /** Images that the page may stand for, the likeliest first. */
  readonly images: readonly string[];
  /** A part of its text. */
  readonly text: string;
  /** Where the page says that it is described for embedding. */
  readonly embedding: string | undefined;
  /** What relative addresses start from. */
  readonly base: string | undefined;
}

/** Text inside of these is no content. */
const skipped: ReadonlySet<string> = new Set([
  ...['script', 'style', 'noscript', 'template', 'svg', 'math', 'iframe', 'canvas', 'object'],
  ...['head', 'header', 'footer', 'nav', 'aside', 'form', 'button', 'select', 'textarea', 'figure', 'video', 'audio'],
]);
/** Text on either side of these belongs to different paragraphs. */
const blocks: ReadonlySet<string> = new Set([
  ...['p', 'div', 'section', 'article', 'main', 'li', 'ul', 'ol', 'table', 'tr', 'blockquote', 'pre', 'br', 'hr'],
  ...['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'dd', 'dt'],
]);

const maxProperties = 50;
const maxImages = 20;
const longestValue = 1_000;
const longestText = 20_000;
const longestTitle = 2_000;
const pieceLength = 16_384;
/** What comes behind this many characters of a page is not looked at. */
const maxLength = 2_000_000;
/** The parser's effort grows with the depth: pages that are nested more deeply are read up to there. */
const maxDepth = 500;

/** What only a browser's eye needs. */
const tooSmall = (side: string | undefined): boolean => side !== undefined && /^\d+$/.test(side) && Number(side) < 32;

class FactCollector {
  readonly openGraph = new Map<string, string>();
  readonly twitter = new Map<string, string>();
  readonly itemImages: string[] = [];
  readonly shownImages: string[] = [];
  readonly icons: string[] = [];
  readonly headings = new Map<string, string>();
  title = '';
  description: string | undefined;
  embedding: string | undefined;
  base: string | undefined;
  text = '';
  #depth = 0;
  #skipping = 0;
  #inTitle = false;
  #heading: string | undefined;
  #inSvg = 0;

  /** Nothing more is to be read. */
  get isTooDeep(): boolean {
    return this.#depth > maxDepth;
  }

  open(name: string, attributes: Readonly<Record<string, string>>): void {
    this.#depth++;
    if (skipped.has(name)) this.#skipping++;
    if (name === 'svg') this.#inSvg++;
    else if (name === 'meta') this.#meta(attributes);
    else if (name === 'link') this.#link(attributes);
    else if (name === 'base') this.base ??= attributes['href'];
    else if (name === 'title' && this.#inSvg === 0 && this.title === '') this.#inTitle = true;
    else if (/^h[123]$/.test(name) && !this.headings.has(name)) {
      this.#heading = name;
      this.headings.set(name, '');
    } else if (name === 'img') this.#image(attributes);
    if (blocks.has(name)) this.#paragraph();
  }

  close(name: string): void {
    this.#depth--;
    if (skipped.has(name) && this.#skipping > 0) this.#skipping--;
    if (name === 'svg') this.#inSvg--;
    if (name === 'title') this.#inTitle = false;
    if (name === this.#heading) this.#heading = undefined;
    if (blocks.has(name)) this.#paragraph();
  }

  say(text: string): void {
    if (this.#inTitle && this.title.length < longestTitle) this.title += text;
    if (this.#heading !== undefined) {
      const before = this.headings.get(this.#heading) ?? '';
      if (before.length < longestTitle) this.headings.set(this.#heading, before + text);
    }
    if (this.#skipping === 0 && !this.#inTitle && this.text.length < longestText) this.text += text;
  }

  facts(): PageFacts {
    const heading = ['h1', 'h2', 'h3'].map((name) => tidy(this.headings.get(name))).find((text) => text !== undefined);
    return {
      openGraph: this.openGraph,
      twitter: this.twitter,
      title: tidy(this.title),
      heading,
      description: tidy(this.description),
      images: [...this.itemImages, ...this.shownImages, ...this.icons],
      text: this.text,
      embedding: this.embedding,
      base: this.base,
    };
  }

  #paragraph(): void {
    if (this.#skipping === 0 && this.text !== '' && !this.text.endsWith('\n') && this.text.length < longestText)
      this.text += '\n';
  }

  #meta(attributes: Readonly<Record<string, string>>): void {
    const content = attributes['content'];
    if (content === undefined) return;
    for (const name of [attributes['property'], attributes['name']]) {
      const match = /^(og|twitter):([\w:.-]{1,100})$/i.exec(name?.trim() ?? '');
      if (match === null) continue;
      const [, prefix = '', key = ''] = match;
      const properties = prefix.toLowerCase() === 'og' ? this.openGraph : this.twitter;
      const value = addressKeys.test(key) ? addressOf(content) : tidy(content);
      if (value !== undefined && properties.size < maxProperties && !properties.has(key)) properties.set(key, value);
    }
    if (attributes['name']?.toLowerCase() === 'description') this.description ??= content;
    if (attributes['itemprop']?.toLowerCase() === 'image' && this.itemImages.length < maxImages)
      this.itemImages.push(content);
  }

  #link({ rel = '', href, type = '' }: Readonly<Record<string, string>>): void {
    if (href === undefined || href === '') return;
    const words = rel.toLowerCase().split(/\s+/);
    if (words.includes('image_src') && this.itemImages.length < maxImages) this.itemImages.push(href);
    if (words.some((word) => word === 'icon' || word === 'apple-touch-icon') && this.icons.length < maxImages)
      this.icons.push(href);
    if (words.includes('alternate') && type.toLowerCase() === 'application/json+oembed') this.embedding ??= href;
  }

  #image({ src, width, height }: Readonly<Record<string, string>>): void {
    if (src === undefined || src === '' || this.#skipping > 0 || this.shownImages.length >= maxImages) return;
    if (!tooSmall(width) && !tooSmall(height)) this.shownImages.push(src);
  }
}

/** Properties that say where something is. */
const addressKeys = /^(?:url|image|image:(?:url|secure_url|src))$/i;

/** An address as it stands there, since a part of one leads elsewhere; `undefined` for none. An image may be one itself (`data:`). */
export function addressOf(text: string): string | undefined {
  const address = text.trim();
  return address === '' || (address.length > longestUrl && !address.startsWith('data:')) ? undefined : address;
}

/** One line, without what does not belong in a text; `undefined` when nothing is left. */
export function tidy(text: string | undefined): string | undefined {
  const clean = text
    ?.toWellFormed()
    .replace(/\p{Cc}+/gu, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  return clean === undefined || clean === '' ? undefined : shortened(clean, longestValue);
}

/** Cut behind a word. */
function shortened(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const cut = text.slice(0, longest - 1).replace(/[\ud800-\udbff]$/, '');
  const space = cut.lastIndexOf(' ');
  return `${space > longest / 2 ? cut.slice(0, space) : cut}…`;
}

const enoughText = 200;
const longestSummary = 500;

/** The first paragraphs of a text, until they say something. */
export function summaryOf(text: string): string | undefined {
  let summary = '';
  for (const part of text.split('\n')) {
    const paragraph = tidy(part);
    if (paragraph === undefined) continue;
    summary += summary === '' ? paragraph : `\n\n${paragraph}`;
    if (summary.length >= enoughText) break;
  }
  return summary === '' ? undefined : shortened(summary, longestSummary);
}

/** The text of a page, by what its answer, its mark and its head say of its encoding. */
async function textOf(bytes: Uint8Array, contentType: string): Promise<string> {
  const { getEncoding } = await import('encoding-sniffer');
  const label = /;\s*charset\s*=\s*"?([\w:.-]{1,40})/i.exec(contentType)?.[1];
  const encoding = getEncoding(bytes, {
    defaultEncoding: 'utf-8',
    ...(label === undefined ? {} : { transportLayerEncodingLabel: label }),
  });
  try {
    return new TextDecoder(encoding).decode(bytes);
  } catch {
    return new TextDecoder('utf-8').decode(bytes);
  }
}

/**
 * Reads what a page says about itself. Never fails: broken pages say little. Reads in pieces, so that others get their turn.
 * @param contentType of the answer
 */
export async function readPage(bytes: Uint8Array, contentType: string): Promise<PageFacts> {
  const [{ Parser: HtmlParser }, text] = await Promise.all([import('htmlparser2'), textOf(bytes, contentType)]);
  const collector = new FactCollector();
  const parser: Parser = new HtmlParser(
    {
      onopentag: (name, attributes) => collector.open(name, attributes),
      onclosetag: (name) => collector.close(name),
      ontext: (data) => collector.say(data),
    },
    { decodeEntities: true, lowerCaseTags: true, lowerCaseAttributeNames: true },
  );
  for (let start = 0; start < Math.min(text.length, maxLength) && !collector.isTooDeep; start += pieceLength) {
    parser.write(text.slice(start, start + pieceLength));
    await turn();
  }
  if (!collector.isTooDeep) parser.end();
  return collector.facts();
}
