import { Injectable } from '@nestjs/common';
import {
  type BackgroundUpdateController,
  BackgroundUpdates,
  type BackgroundUpdateSettings,
  backgroundUpdateSettingsOf,
  type TimedUpdate,
} from '@rookery/database';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Clock, Config, Lifecycle } from '@rookery/platform';

/** What modules know the database of an update by: that with the rows of state is one of its own, if there are two. */
const databaseOf = ({ isInStateDatabase }: TimedUpdate): string => (isInStateDatabase ? 'state' : 'master');

/** Lets a module decide when background updates run: the callbacks `onUpdate`, `defaultBatchSize`, `minBatchSize`. */
@Injectable()
export class BackgroundUpdateControl implements BackgroundUpdateController {
  readonly #settings: BackgroundUpdateSettings;
  #inCharge = false;

  constructor(
    config: Config,
    private readonly clock: Clock,
    private readonly dispatcher: ModuleDispatcher,
    private readonly updates: BackgroundUpdates,
    private readonly lifecycle: Lifecycle,
  ) {
    this.#settings = backgroundUpdateSettingsOf(config);
  }

  /** Takes over once a module wants to decide. From then on the settings hold while there is no such module. */
  refresh(): void {
    if (this.#inCharge || !this.dispatcher.has('onUpdate')) return;
    this.updates.setController(this);
    this.#inCharge = true;
  }

  async aroundBatch(update: TimedUpdate, run: (durationMs: number) => Promise<void>): Promise<void> {
    const { dispatcher, clock } = this;
    const context = callbackContext(undefined);
    const slot = dispatcher.has('onUpdate')
      ? await dispatcher.provide('onUpdate', context, update.name, databaseOf(update), update.oneShot)
      : undefined;
    try {
      await run(slot?.durationMs ?? this.#settings.durationMs);
    } finally {
      await slot?.release?.();
      if (!slot && this.#settings.sleepEnabled) await clock.sleep(this.#settings.sleepMs, this.lifecycle.stopping);
    }
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
