import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import {
  Cache,
  Clock,
  Config,
  KeyedCounter,
  KeyedSemaphore,
  type Requester,
  Semaphore,
  settingError,
  SingleFlight,
} from '@rookery/platform';
import { Embeddings } from './oembed.js';
import { type PageFacts, readPage, summaryOf } from './page-facts.js';
import { type Fetched, PageFetcher } from './page-fetcher.js';
import { PreviewCache } from './preview-cache.js';
import { PreviewImages } from './preview-images.js';
import { longestUrl } from './url-rules.js';

/** How long a preview is kept where the page says nothing else, and its bounds where it does. */
const usualAgeMs = 3_600_000;
const longestAgeMs = 86_400_000;
/** How long nobody is asked again after a failure. */
const failureAgeMs = 60_000;
const maxFailures = 1_000;
const maxAtOnce = 8;
/** Of these, for one user; more wait, so that some places are left for others. */
const maxAtOnceOfUser = 3;
const maxWaiting = 200;
/** Pages that are looked at for one user, waiting ones among them. */
const maxOfUser = 20;
const retryWhenBusyMs = 5_000;
/** Images of a page that are tried until one is good. */
const imageAttempts = 3;

const acceptPage = 'text/html, application/xhtml+xml, application/xml;q=0.9, image/*;q=0.8, */*;q=0.5';
const isMarkup = (type: string): boolean =>
  /^(?:text\/html|application\/xhtml\+xml|(?:text|application)\/xml)\b/i.test(type);

interface Found {
  readonly og: JsonObject;
  readonly maxAgeMs: number | undefined;
  readonly mediaId: string | undefined;
  readonly page: Fetched | undefined;
}

/** Shows what is behind a link. */
@Injectable()
export class Previews implements OnModuleInit {
  readonly #slots = new Semaphore(maxAtOnce);
  readonly #slotsOfUsers = new KeyedSemaphore(maxAtOnceOfUser);
  readonly #making = new SingleFlight<JsonObject>();
  readonly #ofUser = new KeyedCounter();
  readonly #failures: Cache<string, { readonly error: MatrixError; readonly untilMs: number }>;
  #embeddings: Embeddings | undefined;

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly fetcher: PageFetcher,
    private readonly cache: PreviewCache,
    private readonly images: PreviewImages,
  ) {
    this.#failures = new Cache(config, 'preview_failures', { invalidation: 'expires', max: 2 * maxFailures });
  }

  onModuleInit(): void {
    if (!this.config.get('url_preview_enabled')) return;
    const useKnown = !this.config.get('oembed.disable_default_providers');
    const files = this.config.get('oembed.additional_providers');
    this.#check('oembed.additional_providers', () => (this.#embeddings = new Embeddings(useKnown, files)));
    this.#check('url_preview_url_blacklist', () => this.fetcher.prepare());
  }

  /**
   * The OpenGraph properties of an address; may be empty.
   * @param ts the client would like to see the page as it was then; `undefined` for now
   * @throws MatrixError 404 `M_UNRECOGNIZED` where previews are off; 400 `M_INVALID_PARAM`; 403 and 502 `M_UNKNOWN`; 429
   *   `M_LIMIT_EXCEEDED` when too many pages are being looked at
   * @spec client-server-api#get_matrixclientv1mediapreview_url
   */
  async preview(requester: Requester, address: string, ts: number | undefined): Promise<JsonObject> {
    if (!this.config.get('url_preview_enabled')) throw MatrixError.unrecognized('This server makes no previews');
    const parsed = address.length > longestUrl ? null : URL.parse(address);
    if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.href.length > 2 * longestUrl)
      throw MatrixError.invalidParam('This is no address that can be looked at');
    parsed.hash = '';
    if (this.fetcher.isBlocked(parsed)) throw MatrixError.previewForbidden();
    const url = parsed.href;
    const atTs = ts ?? this.clock.nowMs();
    const cached = await this.cache.find(url, atTs);
    if (cached !== undefined) return cached.og;
    const failure = this.#failures.get(url);
    if (failure !== undefined && failure.untilMs > this.clock.nowMs()) throw failure.error;
    return this.#making.run(url, () => this.#begin(requester, parsed, atTs));
  }

  #begin(requester: Requester, url: URL, atTs: number): Promise<JsonObject> {
    const { userId } = requester;
    if (this.#making.size >= maxAtOnce + maxWaiting || this.#ofUser.of(userId) >= maxOfUser)
      throw MatrixError.limitExceeded(retryWhenBusyMs);
    this.#ofUser.add(userId);
    // Another may have made it while this one looked whether there is one.
    const make = async (): Promise<JsonObject> =>
      (await this.cache.find(url.href, atTs))?.og ?? this.#make(requester, url);
    // Who waits for their own turn keeps nobody else waiting.
    return this.#slotsOfUsers.run(userId, () => this.#slots.run(make)).finally(() => this.#ofUser.remove(userId));
  }

  /** What is wrong with a setting stops the start. */
  #check(setting: 'oembed.additional_providers' | 'url_preview_url_blacklist', use: () => void): void {
    try {
      use();
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw settingError(this.config, setting, [], message);
    }
  }

  async #make(requester: Requester, url: URL): Promise<JsonObject> {
    let found: Found;
    try {
      found = await this.#look(requester, url);
    } catch (error) {
      if (MatrixError.is(error)) this.#remember(url.href, error);
      throw error;
    }
    const now = this.clock.nowMs();
    await this.cache.store(url.href, {
      og: found.og,
      downloadTs: now,
      expiresTs: now + Math.min(found.maxAgeMs ?? usualAgeMs, longestAgeMs),
      responseCode: found.page?.status ?? 200,
      etag: found.page?.etag,
      mediaId: found.mediaId,
    });
    return found.og;
  }

  async #look(requester: Requester, url: URL): Promise<Found> {
    const described = this.#embeddings?.addressFor(url.href);
    if (described !== undefined) {
      const embedded = await this.#embedding(requester, described, url).catch(ignoreRefusal);
      if (embedded !== undefined) return embedded;
    }
    const page = await this.fetcher.fetch(url, acceptPage);
    const type = page.contentType.toLowerCase();
    if (type.startsWith('image/')) {
      const image = await this.images.keep(requester, page).catch(ignoreRefusal);
      return { og: image?.og ?? {}, mediaId: image?.mediaId, maxAgeMs: undefined, page };
    }
    if (!isMarkup(type)) return { og: {}, mediaId: undefined, maxAgeMs: undefined, page };
    const facts = await readPage(page.bytes, page.contentType);
    const base = (facts.base === undefined ? null : URL.parse(facts.base, page.url.href)) ?? page.url;
    if (facts.embedding !== undefined && facts.openGraph.size === 0 && this.#embeddings !== undefined) {
      const address = URL.parse(facts.embedding, base.href)?.href;
      const embedded = address && (await this.#embedding(requester, address, url).catch(ignoreRefusal));
      if (embedded) return { ...embedded, page };
    }
    const { og, images } = propertiesOf(facts, page.url);
    return { ...(await this.#withImage(requester, og, images, base)), maxAgeMs: undefined, page };
  }

  async #embedding(requester: Requester, address: string, url: URL): Promise<Found | undefined> {
    const target = URL.parse(address);
    if (target === null) return undefined;
    const answer = await this.fetcher.fetch(target, 'application/json');
    let description: unknown;
    try {
      description = JSON.parse(answer.bytes.toString('utf8'));
    } catch {
      return undefined;
    }
    const embedding = await this.#embeddings?.read(description, url.href);
    if (embedding === undefined) return undefined;
    const { 'og:image': image, ...og } = embedding.og;
    const images = typeof image === 'string' ? [image] : [];
    return { ...(await this.#withImage(requester, og, images, target)), maxAgeMs: embedding.maxAgeMs, page: undefined };
  }

  /** Adds the first of some images that can be had. */
  async #withImage(
    requester: Requester,
    og: JsonObject,
    images: readonly string[],
    base: URL,
  ): Promise<{ readonly og: JsonObject; readonly mediaId: string | undefined }> {
    for (const address of images.slice(0, imageAttempts)) {
      const fetched = await this.#image(address, base).catch(ignoreRefusal);
      const image = fetched && (await this.images.keep(requester, fetched).catch(ignoreRefusal));
      if (image !== undefined) return { og: { ...og, ...image.og }, mediaId: image.mediaId };
    }
    return { og, mediaId: undefined };
  }

  async #image(address: string, base: URL): Promise<Fetched | undefined> {
    const inline = /^data:(image\/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)$/.exec(address);
    if (inline !== null) {
      const bytes = Buffer.from(inline[2] ?? '', 'base64');
      return { status: 200, url: base, etag: undefined, contentType: inline[1] ?? '', bytes };
    }
    const url = URL.parse(address, base.href);
    return url !== null && /^https?:$/.test(url.protocol) ? this.fetcher.fetch(url, 'image/*') : undefined;
  }

  #remember(url: string, error: MatrixError): void {
    if (error.status === 429) return;
    this.#failures.set(url, { error, untilMs: this.clock.nowMs() + failureAgeMs });
  }
}

/** A part of a preview that cannot be had is left out. */
function ignoreRefusal(error: unknown): undefined {
  if (!MatrixError.is(error)) throw error;
  return undefined;
}

/** What clients get of a page, without its image, and addresses of images that would do. */
function propertiesOf(facts: PageFacts, url: URL): { readonly og: JsonObject; readonly images: readonly string[] } {
  const { openGraph, twitter } = facts;
  const og: Record<string, string> = {};
  for (const [name, value] of openGraph) if (!/^(?:image|video|audio)(?::|$)/.test(name)) og[`og:${name}`] = value;
  for (const name of ['title', 'description', 'site_name', 'url'])
    if (og[`og:${name}`] === undefined && twitter.has(name)) og[`og:${name}`] = twitter.get(name) ?? '';
  const title = og['og:title'] ?? facts.title ?? facts.heading;
  const description = og['og:description'] ?? facts.description ?? summaryOf(facts.text);
  if (title !== undefined) og['og:title'] = title;
  if (description !== undefined) og['og:description'] = description;
  og['og:url'] ??= url.href;
  const own = [openGraph.get('image'), openGraph.get('image:secure_url'), openGraph.get('image:url')];
  const shown = [twitter.get('image'), twitter.get('image:src')];
  const alternative = openGraph.has('image:alt') ? { 'og:image:alt': openGraph.get('image:alt') ?? '' } : {};
  const images = [...own, ...shown, ...facts.images].filter((image) => image !== undefined);
  return { og: { ...og, ...alternative }, images: [...new Set(images)] };
}
