import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import {
  CheckEventForSpam,
  Every,
  MatrixApi,
  MatrixEvents,
  MatrixLog,
  MatrixStore,
  type NewEvent,
} from '@rookery/nest';
import { Codes, type EventVerdict, type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { Settings } from './settings.js';

const forgetAfterMs = 30 * 86_400_000;

/** Greets everybody who joins a room that the sender is in, once. */
@Injectable()
export class WelcomeService implements OnApplicationBootstrap {
  constructor(
    private readonly api: MatrixApi,
    private readonly store: MatrixStore,
    private readonly events: MatrixEvents,
    private readonly log: MatrixLog,
    private readonly settings: Settings,
  ) {}

  onApplicationBootstrap(): void {
    const { concurrency } = this.settings;
    const joins = { types: ['m.room.member'], concurrency };
    this.events.handle((joined) => this.greet(joined), joins).subscribe();
  }

  /** Nobody writes the welcome but the module itself. */
  @CheckEventForSpam()
  checkEvent(event: ModuleEvent): EventVerdict {
    const { body } = event.content;
    return body === this.settings.text && event.sender !== this.#sender ? Codes.FORBIDDEN : NOT_SPAM;
  }

  /** Whom the module has greeted lately is remembered for thirty days. */
  @Every('forget', 86_400_000)
  async forget(): Promise<void> {
    const before = this.api.getCurrentTimeMsec() - forgetAfterMs;
    let after = '';
    for (;;) {
      const page = await this.store.list({ prefix: 'greeted ', ...(after !== '' && { after }) });
      for (const { key, value } of page) if (Number(value) < before) await this.store.delete(key);
      if (page.length === 0) return;
      after = page.at(-1)!.key;
    }
  }

  /** How many were greeted lately, at most a thousand. */
  async count(): Promise<number> {
    return (await this.store.list({ prefix: 'greeted ' })).length;
  }

  get #sender(): string {
    return this.api.getQualifiedUserId(this.settings.sender);
  }

  private async greet({ event, state }: NewEvent): Promise<void> {
    const joined = event.stateKey;
    if (joined === undefined || event.content['membership'] !== 'join' || joined === this.#sender) return;
    const sender = await state.get('m.room.member', this.#sender);
    const key = `greeted ${event.roomId} ${joined}`;
    if (sender?.content['membership'] !== 'join' || (await this.store.get(key)) !== undefined) return;
    await this.store.put(key, this.api.getCurrentTimeMsec());
    try {
      await this.api.createAndSendEventIntoRoom({
        ...{ roomId: event.roomId, sender: this.#sender, type: 'm.room.message' },
        content: { msgtype: 'm.notice', body: this.settings.text },
      });
    } catch (error) {
      this.log.warn('Nobody was welcomed', { roomId: event.roomId, error: String(error) });
    }
  }
}
