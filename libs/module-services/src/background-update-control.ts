import { Injectable } from '@nestjs/common';
import {
  type BackgroundUpdateController,
  BackgroundUpdates,
  type BackgroundUpdateSettings,
  backgroundUpdateSettingsOf,
  type TimedUpdate,
} from '@rookery/database';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import type { UpdateSlot } from '@rookery/module-api';
import { Clock, Config } from '@rookery/platform';

/** What modules know the database of an update by: that with the rows of state is one of its own, if there are two. */
const databaseOf = ({ isInStateDatabase }: TimedUpdate): string => (isInStateDatabase ? 'state' : 'master');

/** Lets a module decide when background updates run: the callbacks `onUpdate`, `defaultBatchSize`, `minBatchSize`. */
@Injectable()
export class BackgroundUpdateControl implements BackgroundUpdateController {
  readonly #settings: BackgroundUpdateSettings;
  #inCharge = false;
  /** Aborts when other modules are in force. */
  #modules = new AbortController();

  constructor(
    config: Config,
    private readonly clock: Clock,
    private readonly dispatcher: ModuleDispatcher,
    private readonly updates: BackgroundUpdates,
  ) {
    this.#settings = backgroundUpdateSettingsOf(config);
  }

  /**
   * Takes over once a module wants to decide. From then on the settings hold while there is no such module. A batch that is held back by
   * a module from before is asked for anew.
   */
  refresh(): void {
    this.#modules.abort();
    this.#modules = new AbortController();
    if (this.#inCharge || !this.dispatcher.has('onUpdate')) return;
    this.updates.setController(this);
    this.#inCharge = true;
  }

  async aroundBatch(
    update: TimedUpdate,
    run: (durationMs: number) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const slot = await this.#slotFor(update, signal);
    if (signal.aborted) return void slot?.release?.();
    try {
      await run(slot?.durationMs ?? this.#settings.durationMs);
    } finally {
      if (slot?.release) await unlessAborted(Promise.resolve(slot.release()), signal);
      if (!slot && this.#settings.sleepEnabled) await this.clock.sleep(this.#settings.sleepMs, signal);
    }
  }

  /** `undefined` where no module decides, or the signal aborts. */
  async #slotFor(update: TimedUpdate, signal: AbortSignal): Promise<UpdateSlot | undefined> {
    const { dispatcher } = this;
    const context = callbackContext(undefined);
    while (dispatcher.has('onUpdate') && !signal.aborted) {
      const asked = dispatcher.provide('onUpdate', context, update.name, databaseOf(update), update.oneShot);
      const modules = this.#modules.signal;
      const slot = await unlessAborted(asked, signal, modules);
      if (slot || !(signal.aborted || modules.aborted)) return slot;
      // Whoever gives it after all gets it back: it is not used.
      asked.then((late) => late?.release?.()).catch(() => undefined);
    }
    return undefined;
  }

  async defaultBatchSize(update: TimedUpdate): Promise<number> {
    const { dispatcher } = this;
    const size = dispatcher.has('defaultBatchSize')
      ? await dispatcher.provide('defaultBatchSize', callbackContext(undefined), update.name, databaseOf(update))
      : undefined;
    return size ?? this.#settings.defaultBatchSize;
  }

  async minBatchSize(update: TimedUpdate): Promise<number> {
    const { dispatcher } = this;
    const size = dispatcher.has('minBatchSize')
      ? await dispatcher.provide('minBatchSize', callbackContext(undefined), update.name, databaseOf(update))
      : undefined;
    return size ?? this.#settings.minBatchSize;
  }
}

/** What comes of work; `undefined` as soon as one of the signals aborts. */
async function unlessAborted<T>(work: Promise<T>, ...signals: readonly AbortSignal[]): Promise<T | undefined> {
  const ended = new AbortController();
  const over = AbortSignal.any([...signals, ended.signal]);
  const aborted = new Promise<undefined>((resolve) => {
    if (over.aborted) resolve(undefined);
    else over.addEventListener('abort', () => resolve(undefined), { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    // Or the signals, which last longer, would keep it.
    ended.abort();
  }
}
