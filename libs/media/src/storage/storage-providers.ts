import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { MediaDownloadHeaders, MediaStorageProvider } from '@rookery/module-api';
import { ModuleDispatcher, ModuleLoadError } from '@rookery/module-host';
import { Clock, Config, KeyedMutex, Lifecycle, Logger } from '@rookery/platform';
import type { FilePlace } from './file-place.js';
import { fileSystemProvider } from './file-system-provider.js';
import { madeStorageProvider } from './made-storage-provider.js';

interface Entry {
  readonly name: string;
  readonly provider: MediaStorageProvider;
  readonly storesLocal: boolean;
  readonly storesRemote: boolean;
  readonly synchronous: boolean;
}

/** How a file is handed to the providers. */
export interface StoreOptions {
  /** There is no other copy: wait for those, too, that nobody waits for otherwise. */
  readonly waitForAll?: boolean;
  readonly release?: () => Promise<void>;
}

/** Longest time that a provider may take for one file. */
const limitMs = 300_000;
/** Files that wait for providers which nobody waits for; what comes beyond is waited for. */
const maxQueued = 1_000;
const builtIn = 'file_system';

/** The places of the setting `media_storage_providers`, in their order. Images of previews go to none. */
@Injectable()
export class StorageProviders implements OnModuleInit {
  #entries: readonly Entry[] = [];
  readonly #queued = new Set<Promise<void>>();
  /** What is being stored, by path. */
  readonly #storing = new KeyedMutex();

  constructor(
    private readonly config: Config,
    private readonly modules: ModuleDispatcher,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
  ) {}

  onModuleInit(): void {
    if (this.config.get('media_storage_providers').length === 0) return;
    // Not before modules have registered what they provide.
    this.lifecycle.on('streams', {
      name: 'media storage providers',
      everyProcess: true,
      start: () => this.load(),
      stop: () => this.settled(),
    });
  }

  /** Makes the providers. @throws ModuleLoadError when a setting names none, or its configuration is refused */
  async load(): Promise<void> {
    const made = this.config.get('media_storage_providers').map(async (setting, index) => ({
      name: setting.module,
      provider: await this.#create(setting.module, setting.config, index),
      storesLocal: setting.store_local,
      storesRemote: setting.store_remote,
      synchronous: setting.store_synchronous,
    }));
    this.#entries = await Promise.all(made);
  }

  /** Whether there are any. */
  get exist(): boolean {
    return this.#entries.length > 0;
  }

  /** Whether any of them may say where a client gets a file by itself. */
  get mayRedirect(): boolean {
    return this.#entries.some(({ provider }) => provider.downloadUrl !== undefined);
  }

  /** Resolves when nothing is being stored in the background. */
  async settled(): Promise<void> {
    while (this.#queued.size > 0) await Promise.all(this.#queued);
  }

  /** Whether any of them keeps the file: those that nobody waits for count, too. */
  keeps(place: FilePlace): boolean {
    return this.#keepersOf(place).length > 0;
  }

  /**
   * Hands a file to everyone who keeps such files: resolves when those have it that are to be waited for.
   * @param localPath must stay until `release` is called, once, when nobody reads the file any more
   * @throws Error when one that is waited for fails
   */
  async store(place: FilePlace, localPath: string, options: StoreOptions = {}): Promise<void> {
    const keepers = this.#keepersOf(place);
    const waited: Promise<void>[] = [];
    const all: Promise<void>[] = [];
    for (const entry of keepers) {
      const storing = this.#within(
        entry.provider.storeFile(place.path, place.info, localPath),
        `${entry.name} to store a file`,
      );
      all.push(storing);
      if (options.waitForAll || entry.synchronous || this.#queued.size >= maxQueued) waited.push(storing);
      else storing.catch((err: unknown) => this.#complain('A file was not stored', entry, place, err));
    }
    const stored = this.#storing.run(place.path, () => Promise.allSettled(all));
    const putAway = async (): Promise<void> => {
      await stored;
      await options.release?.();
    };
    this.#queue(
      putAway().catch((err: unknown) => this.logger.error('A file could not be put away', { path: place.path, err })),
    );
    await Promise.all(waited);
  }

  /** The contents from the first provider that has the file; one that fails is passed over. */
  async fetch(place: FilePlace): Promise<AsyncIterable<Uint8Array> | undefined> {
    if (place.info.urlCache) return undefined;
    for (const entry of this.#entries) {
      try {
        const found = await this.#within(entry.provider.fetch(place.path, place.info), `${entry.name} to find a file`);
        if (found !== undefined) return found;
      } catch (err) {
        this.#complain('A storage provider failed', entry, place, err);
      }
    }
    return undefined;
  }

  /** Where a client gets the file by itself, from the first provider that says so; one that fails is passed over. */
  async downloadUrl(place: FilePlace, headers: MediaDownloadHeaders): Promise<string | undefined> {
    if (place.info.urlCache) return undefined;
    for (const entry of this.#entries) {
      if (entry.provider.downloadUrl === undefined) continue;
      try {
        const what = `${entry.name} to say where a file is`;
        const url = await this.#within(entry.provider.downloadUrl(place.path, place.info, headers), what);
        if (url === undefined) continue;
        const { protocol, href } = new URL(url);
        if (protocol === 'https:' || protocol === 'http:') return href;
        throw new Error('clients are sent to http and https addresses only');
      } catch (err) {
        this.#complain('A storage provider failed', entry, place, err);
      }
    }
    return undefined;
  }

  /** Has the file forgotten everywhere, by those that are still storing it once they have; failures are logged. */
  async remove(place: FilePlace): Promise<void> {
    if (place.info.urlCache) return;
    if (!this.#storing.isBusy(place.path)) return this.#removeNow(place);
    this.#queue(this.#storing.run(place.path, () => this.#removeNow(place)));
  }

  #queue(work: Promise<void>): void {
    const done = work.finally(() => this.#queued.delete(done));
    this.#queued.add(done);
  }

  async #removeNow(place: FilePlace): Promise<void> {
    await Promise.all(
      this.#entries.map(async (entry) => {
        if (entry.provider.remove === undefined) return;
        try {
          await this.#within(entry.provider.remove(place.path, place.info), `${entry.name} to remove a file`);
        } catch (err) {
          this.#complain('A file was not removed', entry, place, err);
        }
      }),
    );
  }

  #keepersOf({ info }: FilePlace): readonly Entry[] {
    if (info.urlCache) return [];
    return this.#entries.filter((entry) => (info.serverName === undefined ? entry.storesLocal : entry.storesRemote));
  }

  async #within<T>(work: Promise<T>, what: string): Promise<T> {
    const done = new AbortController();
    try {
      return await Promise.race([
        work,
        this.clock.sleep(limitMs, done.signal).then(() => Promise.reject(new Error(`It took too long for ${what}`))),
      ]);
    } finally {
      done.abort();
    }
  }

  #complain(message: string, entry: Entry, place: FilePlace, err: unknown): void {
    this.logger.error(message, { provider: entry.name, path: place.path, err });
  }

  async #create(name: string, config: unknown, index: number): Promise<MediaStorageProvider> {
    const where = this.config.where('media_storage_providers', index);
    try {
      if (name === builtIn) return fileSystemProvider(config, this.config.configDir);
      const factory = this.modules.provider('mediaStorage', name);
      if (factory === undefined)
        throw new Error(`no module provides a media storage of this name: list one that does under 'modules'`);
      return await madeStorageProvider(factory, config, this.config);
    } catch (error) {
      throw new ModuleLoadError(name, error instanceof Error ? error.message : String(error), where, { cause: error });
    }
  }
}
