import type { BackgroundUpdateController, BackgroundUpdates, BackgroundUpdateSettings } from '@rookery/database';
import { callbackContext, type ModuleDispatcher } from '@rookery/module-host';
import type { Clock, Config } from '@rookery/platform';

/** There is one database; modules may be written for servers with several. */
const databaseName = 'master';

/** The settings `background_updates.*`. */
export const backgroundUpdateSettingsOf = (config: Config): BackgroundUpdateSettings => ({
  durationMs: config.get('background_updates.background_update_duration_ms'),
  sleepEnabled: config.get('background_updates.sleep_enabled'),
  sleepMs: config.get('background_updates.sleep_duration_ms'),
  minBatchSize: config.get('background_updates.min_batch_size'),
  defaultBatchSize: config.get('background_updates.default_batch_size'),
});

/** What {@link BackgroundUpdateControl} needs. */
export interface BackgroundUpdateParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly dispatcher: ModuleDispatcher;
  readonly backgroundUpdates: BackgroundUpdates;
  /** Aborts when the server stops. */
  readonly stopping: AbortSignal;
}

/** Lets a module decide when background updates run: the callbacks `onUpdate`, `defaultBatchSize`, `minBatchSize`. */
export class BackgroundUpdateControl implements BackgroundUpdateController {
  readonly #settings: BackgroundUpdateSettings;
  #inCharge = false;

  constructor(private readonly parts: BackgroundUpdateParts) {
    this.#settings = backgroundUpdateSettingsOf(parts.config);
  }

  /** Takes over once a module wants to decide. From then on the settings hold while there is no such module. */
  refresh(): void {
    if (this.#inCharge || !this.parts.dispatcher.has('onUpdate')) return;
    this.parts.backgroundUpdates.setController(this);
    this.#inCharge = true;
  }

  async aroundBatch(
    update: { readonly name: string; readonly oneShot: boolean },
    run: (durationMs: number) => Promise<void>,
  ): Promise<void> {
    const { dispatcher, clock, stopping } = this.parts;
    const context = callbackContext(undefined);
    const slot = dispatcher.has('onUpdate')
      ? await dispatcher.provide('onUpdate', context, update.name, databaseName, update.oneShot)
      : undefined;
    try {
      await run(slot?.durationMs ?? this.#settings.durationMs);
    } finally {
      await slot?.release?.();
      if (!slot && this.#settings.sleepEnabled) await clock.sleep(this.#settings.sleepMs, stopping);
    }
  }

  async defaultBatchSize(name: string): Promise<number> {
    const { dispatcher } = this.parts;
    const size = dispatcher.has('defaultBatchSize')
      ? await dispatcher.provide('defaultBatchSize', callbackContext(undefined), name, databaseName)
      : undefined;
    return size ?? this.#settings.defaultBatchSize;
  }

  async minBatchSize(name: string): Promise<number> {
    const { dispatcher } = this.parts;
    const size = dispatcher.has('minBatchSize')
      ? await dispatcher.provide('minBatchSize', callbackContext(undefined), name, databaseName)
      : undefined;
    return size ?? this.#settings.minBatchSize;
  }
}
