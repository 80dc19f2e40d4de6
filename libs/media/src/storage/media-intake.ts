import { Injectable } from '@nestjs/common';
import type { CallbackContext, MediaFileInfo } from '@rookery/module-api';
import { assertAllowed, ModuleDispatcher } from '@rookery/module-host';
import type { StagedFile } from './staged-file.js';

/** What every file goes through before it is stored, wherever it comes from. */
@Injectable()
export class MediaIntake {
  constructor(private readonly modules: ModuleDispatcher) {}

  /**
   * Looks at a finished file.
   * @throws MatrixError what a module refuses it with
   */
  async inspect(staged: StagedFile, info: MediaFileInfo, mediaType: string, context: CallbackContext): Promise<void> {
    if (this.modules.has('checkMediaFileForSpam')) {
      const file = { sizeBytes: staged.sizeBytes, mediaType, stream: () => staged.read() };
      assertAllowed(await this.modules.gate('checkMediaFileForSpam', context, file, info));
    }
  }

  /** Tells modules of a file that was stored. */
  stored(info: MediaFileInfo, uploader: string | undefined, sizeBytes: number, context: CallbackContext): void {
    if (this.modules.has('onMediaStored'))
      void this.modules.notify('onMediaStored', context, info, uploader, sizeBytes);
  }
}
