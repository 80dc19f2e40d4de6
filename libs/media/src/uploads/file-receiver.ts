import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { callbackContext } from '@rookery/module-host';
import { Clock, Config, KeyedCounter, KeyedMutex, type Requester } from '@rookery/platform';
import type { Media } from '../records/media.js';
import { placeOf } from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import { MediaIntake } from '../storage/media-intake.js';
import type { StagedFile } from '../storage/staged-file.js';
import { Thumbnails } from '../thumbnails/thumbnails.service.js';
import type { IncomingFile } from './incoming-file.js';
import { UploadLimits } from './upload-limits.js';

/** Uploads that one user may have under way. */
const maxAtOnce = 50;
const retryWhenBusyMs = 1_000;

/** Writes the row of a file. */
export type RecordFile = (media: Media, mayBeThere: () => void) => Promise<boolean>;

/** Takes the bytes of an upload: within the limits, inspected, in the storage. */
@Injectable()
export class FileReceiver {
  /** By user, where uploads of a period count together. */
  readonly #turns = new KeyedMutex();
  readonly #underWay = new KeyedCounter();

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly limits: UploadLimits,
    private readonly files: MediaFiles,
    private readonly intake: MediaIntake,
    private readonly thumbnails: Thumbnails,
  ) {}

  /**
   * Reads a file, has it inspected and keeps it.
   * @param record writes its row; `false` when there is one with a file already. Whatever else it comes to, it says where the row may be
   *   there: then the file stays
   * @throws MatrixError 413 `M_TOO_LARGE`, 403 `M_USER_LIMIT_EXCEEDED`, 429 `M_LIMIT_EXCEEDED`, 408 `M_UNKNOWN` for a
   *   body that trickles, 409 `M_CANNOT_OVERWRITE_MEDIA`, and what a module refuses with
   */
  async receive(requester: Requester, mediaId: string, file: IncomingFile, record: RecordFile): Promise<void> {
    const { userId } = requester;
    if (this.#underWay.of(userId) >= maxAtOnce) throw MatrixError.limitExceeded(retryWhenBusyMs);
    this.#underWay.add(userId);
    try {
      await this.limits.countedHere(requester);
      if (file.sizeBytes !== undefined) await this.limits.check(requester, file.sizeBytes);
      const staged = await this.files.stage();
      try {
        await this.#read(staged, file);
        if (file.sizeBytes === undefined) await this.limits.check(requester, staged.sizeBytes);
        await this.#store(requester, mediaId, file, staged, record);
      } catch (error) {
        await staged.discard();
        throw error;
      }
    } finally {
      this.#underWay.remove(userId);
    }
  }

  async #read(staged: StagedFile, file: IncomingFile): Promise<void> {
    try {
      await staged.writeAll(file.body, this.clock, {
        maxBytes: this.limits.maxBytes,
        tooLarge: () => this.limits.tooLarge(),
      });
    } catch (error) {
      // What is left of the body flows by, so that the client can read the answer.
      file.body.on('error', () => undefined).resume();
      if (MatrixError.is(error) || !isBodyError(error)) throw error;
      throw MatrixError.bodyCutOff();
    }
    await staged.finish();
  }

  async #store(
    requester: Requester,
    mediaId: string,
    file: IncomingFile,
    staged: StagedFile,
    record: RecordFile,
  ): Promise<void> {
    const context = callbackContext(requester);
    const { userId: uploader } = requester;
    const place = placeOf({ origin: undefined, fileId: mediaId, urlCache: undefined });
    await this.intake.inspect(staged, place.info, file.mediaType, context);
    const periods = await this.limits.periodsFor(requester);
    const now = this.clock.nowMs();
    const media: Media = {
      origin: undefined,
      mediaId,
      fileId: mediaId,
      sizeBytes: staged.sizeBytes,
      mediaType: file.mediaType,
      uploadName: file.uploadName,
      createdTs: now,
      lastAccessTs: now,
      uploader,
      // Whether it is withheld is found out when it is recorded.
      quarantinedBy: undefined,
      safeFromQuarantine: false,
      authenticated: this.config.get('enable_authenticated_media'),
      sha256: staged.sha256,
      urlCache: undefined,
    };
    const store = async (): Promise<void> => {
      // Others of the same user may have arrived while this one did.
      await this.limits.checkPeriods(requester, staged.sizeBytes, periods);
      await this.files.keep(staged, place);
      let mayBeThere = false;
      try {
        if (!(await record(media, () => (mayBeThere = true)))) throw MatrixError.cannotOverwriteMedia();
      } catch (error) {
        if (!mayBeThere) await this.files.remove(place);
        throw error;
      }
    };
    await (periods.length === 0 ? store() : this.#turns.run(uploader, store));
    this.intake.stored(place.info, uploader, staged.sizeBytes, context);
    this.thumbnails.prepare(media);
  }
}

/** Whether reading the request failed, as opposed to writing the file. */
const isBodyError = (error: unknown): boolean =>
  ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ABORT_ERR', 'ERR_STREAM_DESTROYED'].includes(
    (error as NodeJS.ErrnoException | undefined)?.code ?? '',
  );
