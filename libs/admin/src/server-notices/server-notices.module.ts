import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { ConsentNotices } from './consent-notices.js';
import { LimitNotices } from './limit-notices.js';
import { NoticeAppearance } from './notice-appearance.js';
import { NoticeDispatch } from './notice-dispatch.js';
import { NoticeRooms } from './notice-rooms.js';
import { ServerNotices } from './server-notices.service.js';

/** Notices of the server to its users. */
@Module({
  imports: [UsersModule, RoomsModule],
  providers: [ConsentNotices, LimitNotices, NoticeAppearance, NoticeDispatch, NoticeRooms, ServerNotices],
  exports: [ServerNotices],
})
export class ServerNoticesModule {}
