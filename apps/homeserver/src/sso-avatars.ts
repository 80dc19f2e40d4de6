import { Readable } from 'node:stream';
import { Injectable, Module, type OnModuleInit } from '@nestjs/common';
import { MediaModule, UploadService } from '@rookery/media';
import { SsoModule, SsoPorts } from '@rookery/sso';

/** Pictures of people who sign on become media of theirs: sign-on and media live in libs that do not know each other. */
@Injectable()
class SsoAvatars implements OnModuleInit {
  constructor(
    private readonly ports: SsoPorts,
    private readonly uploads: UploadService,
  ) {}

  onModuleInit(): void {
    this.ports.pictures.give((userId, { bytes, contentType }) =>
      this.uploads.upload(
        {
          ...{ userId, isGuest: false, isAdmin: false },
          ...{ shadowBanned: false, suspended: false, locked: false },
        },
        { body: Readable.from([bytes]), sizeBytes: bytes.length, mediaType: contentType, uploadName: undefined },
      ),
    );
  }
}

@Module({ imports: [SsoModule, MediaModule], providers: [SsoAvatars] })
export class SsoAvatarsModule {}
