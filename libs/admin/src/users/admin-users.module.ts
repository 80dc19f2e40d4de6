import { Module } from '@nestjs/common';
import { AdminKitModule } from '../http/admin-kit.module.js';

/** The admin API of accounts and what belongs to them. */
@Module({ imports: [AdminKitModule] })
export class AdminUsersModule {}
