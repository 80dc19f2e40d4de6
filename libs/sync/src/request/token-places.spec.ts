import type { Database } from '@rookery/database';
import type { E2eePorts } from '@rookery/e2ee';
import { OnlyAtWriterError } from '@rookery/platform';
import type { Notifier } from '@rookery/replication';
import { RecordingLogger } from '@rookery/testing';
import { TokenPlaces } from './token-places.js';
import { type SyncToken, tokenOf } from './sync-token.js';

describe('TokenPlaces', () => {
  const at = (events: number): SyncToken => tokenOf((stream) => (stream === 'events' ? events : 1));

  /** All streams are at 5, but that of events, which gets there with the first wait. */
  const make = (
    onlyAtWriter = (): void => undefined,
  ): { readonly places: TokenPlaces; readonly logger: RecordingLogger } => {
    let events = 4;
    const notifier = {
      position: (name: string) => (name === 'events' ? events : 5),
      reached: async (name: string, position: number) => {
        if (name === 'events') events = 5;
        return position <= 5;
      },
    };
    const logger = new RecordingLogger();
    const ports = { syncPositions: { give: () => undefined } };
    const places = new TokenPlaces(
      ...([
        notifier as unknown as Notifier,
        { onlyAtWriter } as unknown as Database,
        logger,
        ports as unknown as E2eePorts,
      ] as const),
    );
    return { places, logger };
  };
  const { signal } = new AbortController();

  it('waits for what another process has told, and says nothing of it', async () => {
    const { places, logger } = make();
    expect(await places.placed(at(5), signal)).toEqual({ token: at(5), isLost: false });
    expect(logger.lines).toEqual([]);
  });

  it('has a client from the future go on from now, and says so once, with the streams and what to do', async () => {
    const { places, logger } = make();
    expect(await places.placed(at(900), signal)).toEqual({ token: { ...at(5), toDevice: 0 }, isLost: true });
    await places.placed(at(901), signal);
    expect(logger.lines).toEqual([
      {
        level: 'warn',
        message: expect.stringMatching(/from the future.*"rookery restore adopt"/),
        fields: { streams: ['events'] },
      },
    ]);
  });

  it('leaves it to the process that writes to say that a token is from the future', async () => {
    const { places, logger } = make(() => {
      throw new OnlyAtWriterError('a token');
    });
    await expect(places.placed(at(900), signal)).rejects.toThrow(OnlyAtWriterError);
    expect(await places.placed(at(5), signal)).toEqual({ token: at(5), isLost: false });
    expect(logger.lines).toEqual([]);
  });
});
