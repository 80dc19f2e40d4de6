import { AwayError, type CrashClient } from './client.js';

const uploadedAtOnce = 20;

/** What is to be done once and only once besides events: one-time keys, messages to devices, mails. */
export class Errands {
  /** Names of keys, as often as they were given to somebody. */
  readonly claimed: string[] = [];
  /** Numbers of messages to the device whose sending was acknowledged. */
  readonly delivered: number[] = [];
  /** Addresses whose mail was acknowledged, and how often its request was made. */
  readonly mailed = new Map<string, number>();
  #number = 0;
  #goesOn = false;

  /** @param giver whose keys are given away; @param reader who gets the messages */
  constructor(
    private readonly giver: CrashClient,
    private readonly taker: CrashClient,
    private readonly reader: CrashClient,
  ) {}

  /** Goes on until {@link end}. @param pauseMs between two errands of a kind */
  async run(pauseMs: number): Promise<void> {
    this.#goesOn = true;
    const lanes = [() => this.#claim(), () => this.#message(), () => this.#mail()];
    await Promise.all(
      lanes.map(async (errand) => {
        while (this.#goesOn) {
          await errand();
          await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
      }),
    );
  }

  /** What was begun ends by itself. */
  end(): void {
    this.#goesOn = false;
  }

  /** A claim that was cut off is not repeated: the key is spent, and nobody has it. */
  async #claim(): Promise<void> {
    const { userId, deviceId } = this.giver;
    const body = { one_time_keys: { [userId]: { [deviceId]: 'signed_curve25519' } } };
    const answer = await once(() =>
      this.taker.ok<{ one_time_keys: Record<string, Record<string, object>> }>('POST', '/keys/claim', body),
    );
    if (answer === undefined) return;
    const names = Object.keys(answer.one_time_keys[userId]?.[deviceId] ?? {});
    this.claimed.push(...names);
    if (names.length > 0) return;
    const keys = Array.from({ length: uploadedAtOnce }, () => {
      this.#number += 1;
      const signatures = { [userId]: { [`ed25519:${deviceId}`]: 'c2lnbmF0dXJl' } };
      return [`signed_curve25519:K${this.#number}`, { key: `a2V5${this.#number}`, signatures }];
    });
    // Again with the same keys, as clients do: those that are there already count once.
    const upload = { one_time_keys: Object.fromEntries(keys) as object };
    await this.#untilDone(() => this.giver.ok('POST', '/keys/upload', upload));
  }

  async #message(): Promise<void> {
    const n = (this.#number += 1);
    const messages = { [this.reader.userId]: { [this.reader.deviceId]: { n } } };
    const path = `/sendToDevice/org.example.crash/t${n}`;
    if (await this.#untilDone(() => this.taker.ok('PUT', path, { messages }))) this.delivered.push(n);
  }

  async #mail(): Promise<void> {
    const email = `person${(this.#number += 1)}@example.org`;
    const body = { email, client_secret: `secret${this.#number}`, send_attempt: 1 };
    let tries = 0;
    const isDone = await this.#untilDone(() => {
      tries += 1;
      return this.taker.ok('POST', '/register/email/requestToken', body);
    });
    if (isDone) this.mailed.set(email, tries);
  }

  /** Asks until it is answered. @returns false where that was given up at the end */
  async #untilDone(ask: () => Promise<object>): Promise<boolean> {
    for (;;) {
      if ((await once(ask)) !== undefined) return true;
      if (!this.#goesOn) return false;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** What was answered; `undefined` where the connection broke, or the server asks to come again. */
async function once<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof AwayError || error instanceof TypeError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
