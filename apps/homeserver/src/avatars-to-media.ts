import { Injectable, Module, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MediaModule, MediaRemoval } from '@rookery/media';
import { avatarsAmong } from './avatar-uses.query.js';

/** What is in use as an avatar does not grow old: users and rooms live in libs that do not know of retention. */
@Injectable()
class AvatarsToMedia implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly removal: MediaRemoval,
  ) {}

  onModuleInit(): void {
    this.removal.addAvatarUses((uris) => avatarsAmong(this.database, uris));
  }
}

@Module({ imports: [MediaModule], providers: [AvatarsToMedia] })
export class AvatarsToMediaModule {}
